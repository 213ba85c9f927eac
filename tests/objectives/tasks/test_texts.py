"""Texts that are inserted among encoded ones give the ids of the whole text."""

from functools import lru_cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpora.storage.ragged import Ragged
from corpora.tokenizers.kinds.sentencepiece import train as train_sentencepiece
from objectives.tasks.texts import encode_inserted, spell_after_space
from tests.artefacts import small_tokenizer

WORDS = "the quick brown fox jumps over lazy dogs while seven wizards observe strange lights".split()
TEXTS = st.lists(st.sampled_from(WORDS), min_size=1, max_size=5).map(" ".join)


@lru_cache(maxsize=1)
def sentence_pieces():
    return train_sentencepiece(
        [f"question: {a} {b}? context: {b} {c}." for a in WORDS for b in WORDS for c in "ab"], 300
    )


def encoded(tokenizer, text):
    return tokenizer.encode([text]).values.tolist()


@settings(max_examples=15)
@given(TEXTS, TEXTS)
def test_line_ends_between_texts_of_byte_level_bpe(query, document):
    tokenizer = small_tokenizer()
    joined = [*encoded(tokenizer, query), *encode_inserted(tokenizer, "\n\n"), *encoded(tokenizer, document)]
    assert joined == encoded(tokenizer, f"{query}\n\n{document}")


@settings(max_examples=15)
@given(TEXTS, TEXTS)
def test_prefix_and_middle_of_sentencepiece(query, document):
    tokenizer = sentence_pieces()
    joined = [
        *encode_inserted(tokenizer, "question: ", first=True),
        *encoded(tokenizer, query),
        *encode_inserted(tokenizer, " context: "),
        *encoded(tokenizer, document),
    ]
    assert joined == encoded(tokenizer, f"question: {query} context: {document}")


@pytest.mark.parametrize("text", [" context: ", "x", " ", "\n", "question: "])
def test_what_cannot_be_cut_out_still_reads_the_same(text):
    tokenizer = small_tokenizer()
    joined = [*encoded(tokenizer, "fox"), *encode_inserted(tokenizer, text), *encoded(tokenizer, "dogs")]
    assert tokenizer.decode(joined) == f"fox{text}dogs"
    joined = [*encode_inserted(tokenizer, text, first=True), *encoded(tokenizer, "dogs")]
    assert tokenizer.decode(joined) == f"{text}dogs"


@settings(max_examples=15)
@given(TEXTS)
def test_targets_after_a_space_have_the_tokens_of_the_same_words_in_a_document(target):
    tokenizer = small_tokenizer()
    (spelt,) = spell_after_space(tokenizer, tokenizer.encode([target]))
    assert [*encoded(tokenizer, "fox"), *spelt] == encoded(tokenizer, f"fox {target}")
    assert spelt.tolist() != encoded(tokenizer, target)
    assert tokenizer.decode(spelt) == f" {target}"


def test_targets_that_need_no_space_stay_as_they_are():
    pieces, tokenizer = sentence_pieces(), small_tokenizer()
    targets = pieces.encode(["fox", "", " dogs"])
    assert spell_after_space(pieces, targets) is targets
    spaced = ["\nfox", " dogs"]
    assert list(map(tokenizer.decode, spell_after_space(tokenizer, tokenizer.encode(spaced)))) == spaced
    assert spell_after_space(tokenizer, Ragged.from_rows([], "int32")).lengths.size == 0
