"""The keys of docs/formats.md, section *Draws*: masks recomputed from that page with numpy and the standard library."""

import json
from hashlib import blake2b
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from objectives.api.masks import IN_SOURCE, IN_TARGET, REPLACED, VISIBLE
from objectives.api.protocol import OBJECTIVES, draw_key, equip, load_objective, mask_key
from objectives.sentences.spans import TREATMENTS
from objectives.span import Span
from tests.factories import make_sequences
from tests.toy_tools import TOOLS

SEED = 7
BATCH = make_sequences([90, 300, 41, 7], 3, seed=4, mean_sentence=5)


def key_of(objective, adjustable=()) -> bytes:
    options = {name: value for name, value in objective.options.items() if name not in adjustable}
    text = json.dumps([SEED, "mask", {"objective": objective.name, **options}], sort_keys=True, separators=(",", ":"))
    return blake2b(text.encode(), digest_size=16).digest()


def generator(key: bytes, name: bytes) -> np.random.Philox:
    return np.random.Philox(key=np.frombuffer(blake2b(name, digest_size=16, key=key).digest(), "<u8"))


def first_word(key: bytes, name: bytes) -> int:
    return int.from_bytes(blake2b(name, digest_size=16, key=key).digest()[:8], "little")


def ids(batch) -> list[bytes]:
    return [row.tobytes() for row in batch.sequence_ids]


@pytest.mark.parametrize(
    ("name", "options", "adjustable"),
    [
        ("span", {}, ()),
        ("span", {"placement": "rolled", "mean_span_lengths": [4, 8, 12]}, ()),
        ("principal_sentences", {"target_length": 512}, ["target_length"]),
        ("entity_pyramid", {}, ()),
        ("model_based", {}, ["density", "span_share", "target_length", "sentinels"]),
        ("cross_document", {}, ()),
    ],
)
def test_the_key_of_the_masks_and_of_their_draws(name, options, adjustable):
    objective = load_objective(name, options=options)
    key = key_of(objective, adjustable)
    assert mask_key(SEED, objective) == draw_key(key, 0) == key
    assert draw_key(key, 3) == blake2b(b"draw 3", digest_size=16, key=key).digest()
    assert ("placement" in objective.options) == ("placement" in options)  # left out where it is as before it


def test_the_page_names_every_option_that_decides_no_key():
    page = (Path(__file__).parents[3] / "docs" / "formats.md").read_text("utf-8")
    (rule,) = (line for line in page.splitlines() if line.startswith("- **masks**: purpose `mask`"))
    for name, entry in OBJECTIVES.installed().items():
        if entry.value.startswith("objectives."):
            for option in getattr(entry.load(), "adjustable", ()):
                assert f"`{option}`" in rule.partition(f"of `{name}`")[0], (name, option)


def test_span_draws_by_the_generator_of_the_sequence():
    objective = Span(density=0.15, mean_span_lengths=(means := (3.0, 6.0)))
    key = key_of(objective)
    masks = objective.mask(BATCH, key)
    for row, name in enumerate(ids(BATCH)):
        mean = means[first_word(key + b"mean", name) % 2]
        tokens = int(BATCH.tokens.lengths[row])
        noise = max(round(tokens * 0.15), 1)
        spans = max(round(noise / mean), 1)
        draws = np.random.Generator(generator(key, name))
        visible, hidden = (composition(draws, items, spans) for items in (tokens - noise, noise))
        covered = np.zeros(tokens, bool)
        covered[np.repeat(np.tile([False, True], spans), np.stack([visible, hidden], 1).ravel())] = True
        found = np.zeros(tokens, bool)
        for start, size in zip(masks.span_starts[row], masks.span_lengths[row], strict=True):
            found[start : start + size] = True
        assert np.array_equal(found, covered)


def composition(draws: np.random.Generator, items: int, parts: int) -> np.ndarray:
    """Floyd's choice of gaps, as objectives/draws/compositions.py tells it."""
    gaps: set[int] = set()
    for last in range(items - parts, items - 1):
        gap = int(draws.integers(last + 1, dtype=np.uint32)) if last else 0
        gaps.add(last if gap in gaps else gap)
    return np.diff([0, *(gap + 1 for gap in sorted(gaps)), items])


def test_cross_document_draws_a_number_a_token_and_a_word_a_replacement():
    objective: Any = equip(load_objective("cross_document", options={"mlm_probability": 0.3}), TOOLS)
    key = key_of(objective)
    masks = objective.mask(BATCH, key)
    bounds = np.rint(np.cumsum(objective.treatments) * 0.3 * 2**32)
    tokenizer = TOOLS.tokenizer
    text_ids = [n for n in range(tokenizer.vocab_size) if n not in tokenizer.owned_tokens.values()]
    for row, name in enumerate(ids(BATCH)):
        size = int(BATCH.tokens.lengths[row])
        numbers = generator(key, name).random_raw((size + 1) // 2).astype("<u8").view("<u4")[:size]
        chosen = np.flatnonzero(numbers < bounds[-1])
        assert masks.span_starts[row].tolist() == chosen.tolist()
        kinds = np.searchsorted(bounds, numbers[chosen], side="right")
        flags = np.array([IN_SOURCE | IN_TARGET, REPLACED | IN_TARGET, VISIBLE | IN_TARGET])[kinds]
        assert masks.span_flags[row].tolist() == flags.tolist()
        words = generator(key + b"replacements", name).random_raw(int((kinds == 1).sum()))
        assert masks.replacements[row].tolist() == [text_ids[int(word) % len(text_ids)] for word in words]


@pytest.mark.parametrize("scope", ["document", "sequence"])
def test_sentences_have_words_of_their_texts_generator(scope):
    options = {"strategy": "random", "ratio": [0.2, 0.6], "scope": scope, "treatments": [0.5, 0.2, 0.2, 0.1]}
    objective: Any = load_objective("principal_sentences", options=options)
    key = key_of(objective, ["target_length"])
    masks = objective.mask(BATCH, key)
    for row, name in enumerate(ids(BATCH)):
        tokens, starts = int(BATCH.tokens.lengths[row]), BATCH.sentence_starts[row]
        borders = [*BATCH.document_starts[row], tokens] if scope == "document" else [0, tokens]
        expected = {}
        number = 0
        for first, last in pairwise(borders):
            inside = [int(start) for start in starts if first <= start < last]
            if not inside:
                continue
            words = generator(key, name + number.to_bytes(4, "little")).random_raw(4 * (len(inside) + 1))
            number += 1
            uniform = (words >> np.uint64(11)) * 2.0**-53
            ratio = 0.2 + (0.6 - 0.2) * uniform[0]
            product = np.float64(len(inside)) * ratio
            count = int(np.ceil(product) if objective.rounding == "up" else np.floor(product))
            best = sorted(range(len(inside)), key=lambda s: -uniform[4 * (s + 1)])[: min(max(count, 1), len(inside))]
            for sentence in best:
                treatment = np.searchsorted([0.5, 0.7, 0.9, 1.0], uniform[4 * (sentence + 1) + 2], side="right")
                expected[inside[sentence]] = int(TREATMENTS[treatment])
        found = zip(masks.span_starts[row].tolist(), masks.span_flags[row].tolist(), strict=True)
        assert dict(found) == dict(sorted(expected.items()))


def test_of_a_pyramids_sentences_the_lowest_words_stay_visible():
    objective: Any = equip(load_objective("entity_pyramid", "primera"), TOOLS)
    key = key_of(objective)
    masks = objective.mask(BATCH, key)
    seen = 0
    for row, name in enumerate(ids(BATCH)):
        starts = [int(start) for start in BATCH.sentence_starts[row] if start < BATCH.tokens.lengths[row]]
        if not starts:
            continue
        words = generator(key, name + bytes(4)).random_raw(4 * (len(starts) + 1))
        chosen = [starts.index(start) for start in masks.span_starts[row].tolist()]
        lowest = sorted(chosen, key=lambda s: int(words[4 * (s + 1)]))[: int(len(chosen) * objective.visible)]
        visible = [s for s, flags in zip(chosen, masks.span_flags[row], strict=True) if flags & VISIBLE]
        assert visible == sorted(lowest)
        seen += len(visible)
    assert seen


def test_candidates_of_model_based_are_spans_of_its_key():
    objective: Any = load_objective("model_based", "bart_ls")
    key = key_of(objective, objective.adjustable)
    spans = Span(density=objective.candidate_density, mean_span_lengths=objective.mean_span_lengths)
    assert objective.candidates(BATCH, key).to_arrow().equals(spans.mask(BATCH, key).to_arrow())
