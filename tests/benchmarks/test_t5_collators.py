"""Ports of T5's collators: each gives source and target that together are the text, with the published shares."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.t5_collators import flax, flax_mask, t5, t5_mask

VOCAB, END = 400, 1


@pytest.mark.parametrize("length", [20, 100, 511])
@pytest.mark.parametrize("make", [lambda size, rng: t5_mask(size, rng), lambda size, rng: flax_mask(size)])
def test_a_mask_hides_15_percent_in_spans_of_three(length, make):
    mask = make(length, np.random.default_rng(0))
    noise = max(round(0.15 * length), 1)
    begins = mask & ~np.concatenate([[False], mask[:-1]])
    assert (mask.shape, mask.sum(), begins.sum()) == ((length,), noise, max(round(noise / 3), 1))
    assert not mask[0]
    assert mask[-1]


def restored(source: np.ndarray, target: np.ndarray) -> list[int]:
    """The text, with what follows each sentinel of the target in the place of that sentinel in the source."""
    hidden: dict[int, list[int]] = {}
    for token in target[:-1].tolist():
        if token >= VOCAB - 50:
            hidden[token] = []
        else:
            hidden[list(hidden)[-1]].append(token)
    text = []
    for token in source[:-1].tolist():
        text += hidden.get(token, [token])
    return text


def test_source_and_target_are_the_text():
    tokens = np.random.default_rng(1).integers(2, VOCAB - 50, (4, 100)).astype(np.int32)
    for source, target in (t5(tokens, VOCAB, END, np.random.default_rng(2)), flax(tokens, VOCAB, END)):
        assert (source[:, -1] == END).all()
        assert (target[:, -1] == END).all()
        for row, text in enumerate(tokens):
            assert restored(source[row], target[row]) == text.tolist()
            sentinels = [token for token in source[row].tolist() if token >= VOCAB - 50]
            assert sentinels == list(range(VOCAB - 1, VOCAB - 1 - len(sentinels), -1))
