"""Draws: their distribution, the tokens they may take, and their keys."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.trainer.generation.models import IDS, model_of, ragged
from trainer.generation.candidates import draw, uniforms
from trainer.generation.config import GenerationConfig
from trainer.generation.generate import generate

SHARES = np.array([0.4, 0.05, 0.3, 0.0, 0.15, 0.1])


def drawn_shares(**options):
    """Share of each id in 40,000 evenly spread draws."""
    count = 40_000
    with np.errstate(divide="ignore"):
        log_probs = torch.from_numpy(np.log(SHARES)).expand(count, -1)
    even = (torch.arange(count, dtype=torch.float64) + 0.5) / count
    tokens = draw(log_probs, even, GenerationConfig(beams=1, sample=True, **options))
    return np.bincount(tokens.numpy(), minlength=len(SHARES)) / count


@pytest.mark.parametrize(
    ("options", "kept", "power"),
    [
        ({}, [0, 1, 2, 4, 5], 1),
        ({"temperature": 0.5}, [0, 1, 2, 4, 5], 2),
        ({"temperature": 2.0}, [0, 1, 2, 4, 5], 0.5),
        ({"temperature": 1e-320}, [0], 1),
        ({"temperature": 1e308}, [0, 1, 2, 4, 5], 0),
        ({"top_k": 2}, [0, 2], 1),
        ({"top_k": 99}, [0, 1, 2, 4, 5], 1),
        ({"top_p": 0.69}, [0, 2], 1),
        ({"top_p": 0.72}, [0, 2, 4], 1),
        ({"top_p": 1e-9}, [0], 1),
        ({"top_k": 3, "top_p": 0.8}, [0, 2], 1),  # of the three, 0.4 and 0.3 are 0.82
        ({"top_k": 4, "temperature": 0.5}, [0, 2, 4, 5], 2),
    ],
)
def test_tokens_are_drawn_by_their_share_of_what_is_kept(options, kept, power):
    expected = np.zeros(len(SHARES))
    expected[kept] = SHARES[kept] ** power
    np.testing.assert_allclose(drawn_shares(**options), expected / expected.sum(), atol=2e-4)


def test_equal_tokens_at_the_edge_of_top_k_are_taken_by_the_lowest_id():
    log_probs = torch.full((50, 8), -2.0, dtype=torch.float64)
    even = torch.linspace(0, 0.99, 50, dtype=torch.float64)
    assert set(draw(log_probs, even, GenerationConfig(beams=1, sample=True, top_k=3)).tolist()) == {0, 1, 2}


def test_draws_belong_to_the_seed_of_the_sample():
    config = GenerationConfig(beams=1, sample=True, max_tokens=30)
    seeds = np.array([7, 2**64 - 1, 7, 0], np.uint64)
    first = uniforms(seeds, config)
    assert first.shape == (4, 31)
    assert (first[0] == first[2]).all()
    assert len(np.unique(first)) == 3 * 31
    assert not np.isin(uniforms(seeds, GenerationConfig(beams=1, sample=True, max_tokens=30, seed=1)), first).any()
    assert abs(uniforms(np.arange(200, dtype=np.uint64), config).mean() - 0.5) < 0.02


def test_sampled_texts_differ_by_seed_only():
    model, config = model_of(), GenerationConfig(beams=1, sample=True, max_tokens=12, min_tokens=4)
    rows, seeds = np.zeros(6, np.int64), np.array([3, 3, 4, 5, 6, 3], np.uint64)
    found = generate(model, ragged([9], rows=rows, seeds=seeds), config, IDS)
    texts = [tokens.tolist() for tokens in found.tokens]
    assert texts[0] == texts[1] == texts[5]
    assert len({tuple(text) for text in texts}) > 2


def test_sampling_from_the_best_token_alone_is_greedy():
    model, sources = model_of(seed=2), ragged([9, 4], seeds=np.arange(2, dtype=np.uint64))
    greedy = generate(model, sources, GenerationConfig(beams=1, max_tokens=12), IDS)
    single = generate(model, sources, GenerationConfig(beams=1, sample=True, top_k=1, max_tokens=12), IDS)
    assert [text.tolist() for text in single.tokens] == [text.tolist() for text in greedy.tokens]
    np.testing.assert_array_equal(single.scores, greedy.scores)
