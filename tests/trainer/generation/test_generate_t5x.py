"""T5X's beam search against a slow restatement: one sample, whole texts, Python lists."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.trainer.generation.models import alone, model_of, ragged
from trainer.generation.config import GenerationConfig
from trainer.generation.generate import generate
from trainer.generation.sources import DecoderIds


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


def compare(seed: int) -> int:
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
    assert sum(compare(seed) for seed in range(4)) > 2


@pytest.mark.slow
def test_texts_are_those_of_t5x_in_a_hundred_cases():
    assert sum(compare(seed) for seed in range(100)) > 50
