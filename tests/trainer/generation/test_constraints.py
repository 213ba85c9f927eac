"""Forbidden and forced tokens; n-grams against a restatement with lists."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from corpora.storage.ragged import Ragged
from tests.trainer.generation.models import IDS, model_of, ragged
from trainer.generation.candidates import constrain, without_repeats
from trainer.generation.config import GenerationConfig
from trainer.generation.generate import generate
from trainer.generation.sources import DecoderIds


@pytest.mark.parametrize("size", [1, 2, 3, 4, 7])
def test_exactly_the_tokens_that_complete_an_earlier_ngram_are_forbidden(size):
    draws = np.random.default_rng(size)
    rows, width, vocabulary = 300, 24, 3
    history = torch.from_numpy(draws.integers(0, vocabulary, (rows, width)))
    positions = torch.from_numpy(draws.integers(0, width, rows))
    log_probs = torch.from_numpy(draws.normal(size=(rows, vocabulary)))
    found = without_repeats(log_probs, history, positions, size)
    for row in range(rows):
        text = history[row, : positions[row] + 1].tolist()
        grams = {tuple(text[i : i + size]) for i in range(len(text) - size + 1)}
        last = text[len(text) - size + 1 :] if len(text) >= size - 1 else None
        for token in range(vocabulary):
            forbidden = last is not None and (*last, token) in grams
            assert found[row, token] == (-torch.inf if forbidden else log_probs[row, token])


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("beams", [1, 4])
def test_long_texts_hold_no_ngram_twice(size, beams):
    """Prompts and starts count; without blocking these models repeat themselves at once."""
    model, prompts = model_of(), Ragged.from_rows([[], [5, 6, 5], [7] * 6], np.int32)
    sources = ragged([9, 30, 4], prompts=prompts)
    options = {"beams": beams, "max_tokens": 50, "min_tokens": 50}
    free = generate(model, sources, GenerationConfig(**options), IDS)
    found = generate(model, sources, GenerationConfig(**options, no_repeat_ngram=size), IDS)
    for sample in range(3):
        repeats = []
        for tokens in (free.tokens[sample], found.tokens[sample]):
            grams = [tuple(tokens[i : i + size].tolist()) for i in range(len(tokens) - size + 1)]
            repeats.append(len(grams) - len(set(grams)))
        assert repeats[0] > 20
        assert repeats[1] == 0


def test_a_text_that_may_not_go_on_ends():
    """Three ids that no bigram may repeat, and at least nine tokens."""
    ids, config = DecoderIds(start=0, end=1, pad=2), GenerationConfig(no_repeat_ngram=1, min_tokens=9, max_tokens=12)
    log_probs = torch.tensor([[-1.0, -2.0, -0.5, -3.0]], dtype=torch.float64)
    history = torch.tensor([[0, 3, 2, 2, 2, 2, 2]])
    found = constrain(log_probs, history, torch.tensor([1]), 1, config, ids)
    assert found.tolist() == [[-torch.inf, -2.0, -torch.inf, -torch.inf]]


def test_lengths_and_forced_tokens():
    model, sources = model_of(), ragged([9, 30, 4, 17, 22])
    config = GenerationConfig(min_tokens=4, max_tokens=7, first_tokens=(9, 11), length_penalty=-2.0)
    lengths = set()
    for end in range(12, 24):
        found = generate(model, sources, config, IDS._replace(end=end))
        for tokens in found.tokens:
            assert tokens[:2].tolist() == [9, 11]
            assert not {end, IDS.pad} & set(tokens.tolist())
            lengths.add(len(tokens))
    assert min(lengths) == 4
    assert max(lengths) <= 7
