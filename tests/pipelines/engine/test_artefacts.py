"""Paths as jobs pass them on, and the tokenizer in an artefact."""

from __future__ import annotations

from corpora.tokenizers.kinds.byte_level_bpe import train
from pipelines.engine.artefacts import absolute, artefact_tokenizer, save_tokenizer, tokenizer_folder


def test_equal_folders_have_equal_paths():
    assert absolute("attic://bucket/a/") == absolute("attic://bucket/a")


def test_an_artefact_made_again_has_its_new_tokenizer(tmp_path):
    for vocab_size in (270, 280):
        tokenizer = train(["a few words, and a few more words"], vocab_size)
        save_tokenizer(tokenizer, tokenizer_folder(str(tmp_path)))
        assert artefact_tokenizer(str(tmp_path)).fingerprint == tokenizer.fingerprint
