"""Options of the jobs that read raw text."""

from __future__ import annotations

from corpora.readers import ReadOptions
from pipelines.documents.options import Documents, RawText, TokenizerTraining
from tests.pipelines.typed import typed


def test_files_are_named_once_or_several_times_and_read_alike():
    line = "--input a=x/*.jsonl --input y.txt --format lines --text-field body"
    assert typed(RawText, line) == RawText(
        input=("a=x/*.jsonl", "y.txt"), read=ReadOptions(format="lines", text_field="body")
    )


def test_options_of_documents_that_are_not_typed_are_the_defaults():
    found = typed(Documents, "--output o --tokenizer t --held-out 0.1", inputs=())
    assert found == Documents(inputs=(), output="o", tokenizer="t", held_out=0.1)
    assert (found.task_files, found.error_budget, found.sentences) == (2048, 0.01, "nupunkt")


def test_a_tokenizer_is_trained_on_raw_text_read_like_documents():
    found = typed(TokenizerTraining, "--output o --input x --kind sentencepiece --vocab-size 500")
    assert found == TokenizerTraining(
        output="o", text=RawText(input=("x",), read=ReadOptions()), kind="sentencepiece", vocab_size=500
    )
