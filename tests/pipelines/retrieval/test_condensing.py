"""The part of a long document that an encoder reads, against a plain statement of the rule."""

from __future__ import annotations

from itertools import chain

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rouge_score.rouge_scorer import RougeScorer

from corpora.storage.ragged import Ragged
from corpora.tokenizers.huggingface import HuggingFaceTokenizer
from pipelines.retrieval.condensing import condense
from tests.artefacts import small_tokenizer
from tests.tiny_encoder import WORDS, word_piece

SCORER = RougeScorer(["rouge1"])
WORD_PIECE = HuggingFaceTokenizer(word_piece().to_str().encode())

sentences = st.lists(
    st.lists(st.sampled_from([*WORDS, "zebra", "日本", "É"]), min_size=1, max_size=9).map(lambda w: " ".join(w) + ". "),
    min_size=1,
    max_size=12,
)


def starts_of(documents):
    return Ragged.from_rows([np.cumsum([0, *map(len, d[:-1])]) for d in documents], np.int64)


def expected(document, tokenizer, room, long_documents):
    pieces = [tokenizer.encode([sentence])[0].tolist() for sentence in document]
    whole = list(chain(*pieces))
    if len(whole) <= room or long_documents == "first":
        return whole[:room]
    rest = ["".join(document[:i] + document[i + 1 :]) for i in range(len(document))]
    scores = [SCORER.score(b, a)["rouge1"].fmeasure for a, b in zip(document, rest, strict=True)]
    kept, left = [], room
    for i in sorted(range(len(document)), key=lambda i: (-scores[i], i)):
        if len(pieces[i]) <= left:
            kept.append(i)
            left -= len(pieces[i])
    best = max(range(len(document)), key=lambda i: (scores[i], -i))
    return list(chain(*(pieces[i] for i in sorted(kept)))) if kept else pieces[best][:room]


@given(st.lists(sentences, max_size=4), st.integers(1, 60), st.sampled_from(["principal", "first"]))
def test_the_best_sentences_that_fit_in_the_order_of_the_document(documents, room, long_documents):
    texts = ["".join(document) for document in documents]
    ids, longer = condense(texts, starts_of(documents), WORD_PIECE, room, long_documents)
    assert [row.tolist() for row in map(ids.__getitem__, range(len(ids)))] == [
        expected(document, WORD_PIECE, room, long_documents) for document in documents
    ]
    assert longer.tolist() == [len(WORD_PIECE.encode([text])[0]) > room for text in texts]
    assert (ids.lengths <= room).all()


def test_a_chosen_document():
    # ROUGE-1 F1: 2/15 (jump), 4/15 (the, fox), 2/5 (the, fox, jump), 0
    document = ["Some lazy wizards jump. ", "The fox over zebra land. ", "The fox jump. ", "Night and night."]
    pieces = [WORD_PIECE.encode([sentence])[0] for sentence in document]
    sizes = [len(piece) for piece in pieces]

    def kept(room):
        ids, _ = condense(["".join(document)], starts_of([document]), WORD_PIECE, room, "principal")
        return [i for i, piece in enumerate(pieces) if WORD_PIECE.decode(piece) in WORD_PIECE.decode(ids[0])]

    assert kept(sizes[2]) == [2]
    assert kept(sizes[2] + sizes[1] - 1) == [0, 2, 3]  # the second best does not fit; what is left fits
    assert kept(sizes[2] + sizes[1]) == [1, 2]
    assert kept(sizes[2] + sizes[1] + sizes[0]) == [0, 1, 2]


@pytest.mark.parametrize("tokenizer", [WORD_PIECE, small_tokenizer()])
def test_text_without_ascii_words_keeps_its_beginning(tokenizer):
    """Every sentence scores 0: the earlier come first."""
    document = ["日本語です。", "中文。", "Русский текст. "]
    whole = tokenizer.encode(["".join(document)])[0]
    first = len(tokenizer.encode(document[:1])[0])
    ids, _ = condense(["".join(document)], starts_of([document]), tokenizer, first, "principal")
    assert ids[0].tolist() == whole[:first].tolist()


def test_a_sentence_longer_than_the_limit_is_cut():
    text = "the fox jump over the dog and the fox jump over the night"
    ids, longer = condense([text], Ragged.from_rows([[0]], np.int64), WORD_PIECE, 5, "principal")
    assert WORD_PIECE.decode(ids[0]) == "the fox jump over the"
    assert longer.tolist() == [True]


def test_no_texts_and_empty_texts():
    ids, longer = condense([], Ragged.from_rows([], np.int64), WORD_PIECE, 5, "principal")
    assert len(ids) == len(longer) == 0
    ids, longer = condense(["", " "], Ragged.from_rows([[0], [0]], np.int64), WORD_PIECE, 5, "principal")
    assert ids.lengths.tolist() == [0, 0]
    assert longer.tolist() == [False, False]
