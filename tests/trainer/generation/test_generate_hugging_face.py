"""Beam search, token for token, against transformers' ``generate`` with equal weights."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from corpora.storage.ragged import Ragged
from tests.trainer.generation.hugging_face import FAMILIES, VOCAB, models, their_texts
from trainer.generation.config import GenerationConfig
from trainer.generation.generate import generate
from trainer.generation.sources import Sources


def case(number: int, end: int) -> GenerationConfig:
    """The settings of a case: every value meets every family and most values of the other settings."""
    draws = np.random.default_rng(number)
    low, high = sorted(draws.integers(0, 13, 2).tolist())
    return GenerationConfig(
        beams=1 + number % 8,
        length_penalty=float(draws.choice([0.0, 0.5, 1.0, 2.0, 5.0, -1.0])),
        finish="first" if number % 8 == 0 else ("first", "exact", "estimate")[number // 8 % 3],  # one beam: greedy
        no_repeat_ngram=int(draws.choice([0, 2, 3])),
        min_tokens=low,
        max_tokens=max(high, 1),
        first_tokens=(4 + (end == 4),) * int(draws.integers(0, 4) == 0),
    )


def sources_of(name: str, number: int, pad: int) -> Sources:
    """Two to four rows of unequal length; some with prompts, LED with a global first position."""
    draws = np.random.default_rng([number, 1])
    lengths = draws.integers(1, 31, draws.integers(2, 5))
    ids = torch.from_numpy(draws.integers(3, VOCAB, (len(lengths), lengths.max())))
    mask = torch.arange(int(lengths.max())) < torch.from_numpy(lengths)[:, None]
    prompts = None
    if number % 3 == 0:
        values = draws.integers(3, VOCAB, 2 * len(lengths)).astype(np.int32)
        prompts = Ragged.from_lengths(values, [2] * len(lengths))
    first = torch.zeros_like(mask)
    first[:, 0] = True
    return Sources(
        source_ids=ids.masked_fill(~mask, pad),
        source_padding_mask=mask,
        global_positions=first if name == "led" else None,
        prompts=prompts,
    )


def compare(name: str, number: int) -> int:
    """One case; number of texts that ended before their limit."""
    theirs, ours, ids = models(name, number % 10)
    config, sources = case(number, ids.end), sources_of(name, number, ids.pad)
    found = generate(ours, sources, config, ids)
    expected, scores = their_texts(theirs, sources, config, ids)
    assert [tokens.tolist() for tokens in found.tokens] == expected, (name, number, config)
    for score, own in zip(scores, found.scores.tolist(), strict=True):
        assert score is None or own == pytest.approx(score, abs=1e-3, rel=1e-4)
    return sum(len(tokens) < config.max_tokens for tokens in found.tokens)


@pytest.mark.parametrize("name", FAMILIES)
def test_texts_are_those_of_transformers(name):
    assert sum(compare(name, number) for number in (3, 20, 29, 39)) > 2


@pytest.mark.slow
@pytest.mark.parametrize("name", FAMILIES)
def test_texts_are_those_of_transformers_in_a_hundred_cases(name):
    assert sum(compare(name, number) for number in range(100)) > 20, "nearly all texts are cut by the limit"
