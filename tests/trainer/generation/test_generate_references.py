"""Tests of generation against transformers and T5X."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from corpora.storage.ragged import Ragged
from tests.trainer.generation.models import FAMILIES, VOCAB, alone, model_of, models, ragged, their_texts
from trainer.generation.config import GenerationConfig
from trainer.generation.generate import generate
from trainer.generation.sources import DecoderIds, Sources


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


def restated(model, source, beams: int, alpha: float, most: int, ids: DecoderIds) -> tuple[list[int], float]:
    """t5x/decoding.py: beam_search, with our end of texts that have ``most`` tokens."""
    encoded = model.encode(source)
    live, ended = [(0.0, [ids.start])], []
    for count in range(1, most + 2):
        candidates = []
        for total, text in live:
            logits = model.logits(model.decode(torch.tensor([text]), encoded))[0, -1]
            for token, own in enumerate(logits.log_softmax(-1).tolist()):
                if token != ids.pad and (count <= most or token == ids.end):
                    candidates.append((total + own, [*text, token]))
        candidates = sorted(candidates, key=lambda candidate: -candidate[0])[: 2 * beams]
        new = [(total / ((5 + count) / 6) ** alpha, text) for total, text in candidates if text[-1] == ids.end]
        ended = sorted(ended + new, key=lambda candidate: -candidate[0])[:beams]
        live = [candidate for candidate in candidates if candidate[1][-1] != ids.end][:beams]
        longest = ((5 + most + 1) / 6) ** alpha
        if not live or (len(ended) == beams and ended[-1][0] > live[0][0] / longest):
            break
    score, text = ended[0]
    return text[1:-1], score


def compare_t5x(seed: int) -> int:
    """Three sources of one model under drawn settings; number of texts that ended before their limit."""
    draws = np.random.default_rng(seed)
    beams, alpha, most = int(draws.integers(1, 7)), float(draws.choice([0.0, 0.6, 1.0, 2.0])), int(draws.integers(1, 9))
    model, sources = model_of(seed=seed), ragged(draws.integers(1, 30, 3).tolist(), seed=seed)
    config = GenerationConfig(beams=beams, score="gnmt", length_penalty=alpha, finish="exact", max_tokens=most)
    with torch.no_grad():
        likely = model.logits(model.decode(sources.source_ids[:, :3], model.encode(sources.source_ids))).mean((0, 1))
    likely[:3] = -torch.inf
    ids = DecoderIds(start=2, end=int(likely.topk(3).indices[seed % 3]), pad=1)
    found = generate(model, sources, config, ids)
    for sample in range(3):
        with torch.no_grad():
            text, score = restated(model, alone(sources, sample).source_ids, beams, alpha, most, ids)
        assert found.tokens[sample].tolist() == text, (seed, config)
        assert found.scores[sample] == pytest.approx(score, abs=1e-3)
    return sum(len(text) < most for text in found.tokens)


def test_texts_are_those_of_t5x():
    assert sum(compare_t5x(seed) for seed in range(4)) > 2


@pytest.mark.slow
def test_texts_are_those_of_t5x_in_a_hundred_cases():
    assert sum(compare_t5x(seed) for seed in range(100)) > 50
