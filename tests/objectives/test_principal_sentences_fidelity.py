"""Principal sentences against the plain implementation: equal selections, scores, ranks, flags and replacements."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from corpora.keyed import make_key
from corpora.schemas.sequences import SequenceBatch
from objectives.api.protocol import Tools, equip
from objectives.principal_sentences import PrincipalSentences
from objectives.sentences.presets import ENGLISH_STOPWORDS
from tests.factories import make_sequences
from tests.objectives.handmade import Pieces, real_rows
from tests.objectives.plain_sentences import plain_row

KEY = make_key(0, "test")

# Parts of words, stopwords, digits, and what is no word.
PIECES = (
    *("", "", "", "", " cat", " dog", "s", " ran", " the", " The", " of", "don't", " and", ".", ". ", "!?", "\n"),
    *(" 7", "77", " 2024", " a", " CAT", " é", "ß", " 中", "文", " עברית", "\u0130", "\u212a", "-", " hill", " far"),
)


def corpus_rows(rows: int, seed: int) -> SequenceBatch:
    lengths = np.random.default_rng([seed, 7]).integers(0, 70, rows)
    return make_sequences(lengths, 3, seed=seed, vocab=len(PIECES), mean_sentence=1 + seed % 6)


def check(batch: SequenceBatch, tokenizer, **options) -> None:
    objective = equip(PrincipalSentences(**options), Tools(tokenizer))
    o = objective.options
    stopwords = ENGLISH_STOPWORDS if o["stopwords"] == "english" else ()
    masks = objective.mask(batch, KEY)
    for row in range(len(batch)):
        spans, replacements = plain_row(batch, row, KEY, o, tokenizer.decode_with_offsets, stopwords)
        columns = (masks.span_starts, masks.span_lengths, masks.span_flags, masks.span_scores, masks.span_ranks)
        found = list(zip(*(column[row].tolist() for column in columns), strict=True))
        expected = [(a, n, flags, float(np.float32(score)), rank) for a, n, flags, score, rank in spans]
        assert found == expected, f"row {row}"
        if masks.replacements is not None:
            assert masks.replacements[row].tolist() == replacements


STRATEGIES = ("random", "lead", "ind", "seq", "continuous", "hybrid", "dynamic")


@pytest.mark.parametrize("preset", PrincipalSentences.presets)
def test_presets_on_random_documents(preset):
    for seed in range(3):
        check(corpus_rows(30, seed), Pieces(PIECES), **PrincipalSentences.presets[preset])


@pytest.mark.parametrize(("strategy", "counts"), itertools.product(STRATEGIES, ("orig", "uniq", "log")))
def test_strategies_on_random_documents(strategy, counts):
    """Every combination of what is decided in ties, in float32, over the row, for pairs of words, and when full."""
    for seed, (ties, precision, scope) in enumerate(
        itertools.product(("earlier", "later"), ("float64", "float32"), ("document", "sequence"))
    ):
        check(
            corpus_rows(8, 10 + seed),
            Pieces(PIECES),
            strategy=strategy,
            counts=counts,
            ties=ties,
            precision=precision,
            scope=scope,
            ngram=1 + seed % 3 // 2,
            ratio=[0.1, 0.6] if seed % 2 else 0.35,
            rounding="up" if seed % 3 else "down",
            noise=0.5 if strategy == "dynamic" else 0,
            stopwords="english" if seed % 4 == 0 else "none",
            treatments=[0.4, 0.3, 0.2, 0.1],
            target_length=[None, 12, 20][seed % 3],
            when_full="stop" if seed % 2 else "skip",
            begin=seed % 2 == 0,
        )


@pytest.mark.parametrize("preset", PrincipalSentences.presets)
def test_presets_on_real_documents(preset):
    batch, tokenizer = real_rows()
    check(batch, tokenizer, **PrincipalSentences.presets[preset])


@pytest.mark.parametrize("strategy", ["seq", "continuous"])
def test_strategies_on_real_documents(strategy):
    batch, tokenizer = real_rows()
    check(batch.take(range(min(60, len(batch)))), tokenizer, strategy=strategy, ties="later", precision="float32")
