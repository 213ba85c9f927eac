"""T5's preprocessing and Hugging Face's collator for Flax T5, told again in numpy: to measure against, to agree with.

Raffel et al. 2020, section 3.1.4. By default both hide 15 % in spans of three tokens on average; they count sentinels
down from the last id, and end source and target with ``<eos>``.
"""

from __future__ import annotations

import numpy as np

DENSITY, MEAN = 0.15, 3.0


# T5's preprocessing, as seqio runs it: one sequence at a time.


def t5_mask(length: int, rng: np.random.Generator, density: float = DENSITY, mean: float = MEAN) -> np.ndarray:
    """``(length,)`` bool: two random segmentations, interleaved, visible first; shuffled by sorting uniform numbers."""
    noise = min(max(round(length * density), 1), length - 1)
    spans = max(round(noise / mean), 1)

    def segments(items: int) -> np.ndarray:
        begins = (np.arange(items - 1) < spans - 1)[np.argsort(rng.random(items - 1, np.float32))]
        return np.bincount(np.cumsum(np.concatenate([[False], begins])), minlength=spans)

    visible_then_hidden = np.stack([segments(length - noise), segments(noise)], axis=1).reshape(-1)
    turns = np.zeros(length, np.int32)
    turns[np.cumsum(visible_then_hidden)[:-1]] = 1
    return np.cumsum(turns) % 2 == 1


def t5_side(tokens: np.ndarray, dropped: np.ndarray, vocab_size: int, end: int) -> np.ndarray:
    """``tokens`` with every run of ``dropped`` ones replaced by a sentinel that counts down from the last id."""
    before = np.concatenate([[False], dropped[:-1]])
    first = dropped & ~before
    marked = np.where(first, vocab_size - np.cumsum(first, dtype=tokens.dtype), tokens)
    return np.append(marked[~(dropped & before)], tokens.dtype.type(end))


def t5(
    tokens: np.ndarray,
    vocab_size: int,
    end: int,
    rng: np.random.Generator,
    density: float = DENSITY,
    mean: float = MEAN,
) -> tuple[np.ndarray, np.ndarray]:
    """Source and target, ``(B, S)`` and ``(B, T)``, of ``(B, length)`` tokens."""
    rows = [t5_pair(row, t5_mask(len(row), rng, density, mean), vocab_size, end) for row in tokens]
    return np.stack([source for source, _ in rows]), np.stack([target for _, target in rows])


def t5_pair(tokens: np.ndarray, mask: np.ndarray, vocab_size: int, end: int) -> tuple[np.ndarray, np.ndarray]:
    return t5_side(tokens, mask, vocab_size, end), t5_side(tokens, ~mask, vocab_size, end)


# Hugging Face's collator for Flax T5: masks one by one, the rest a batch at a time.


def flax_mask(length: int, density: float = DENSITY, mean: float = MEAN) -> np.ndarray:
    """``(length,)`` bool, with numpy's global generator and ``unique`` to count, as there."""
    noise = min(max(round(length * density), 1), length - 1)
    spans = max(round(min(noise, length - noise) / mean), 1)

    def segments(items: int) -> np.ndarray:
        begins = np.arange(items - 1) < spans - 1
        np.random.shuffle(begins)  # noqa: NPY002
        return np.unique(np.cumsum(np.pad(begins, [[1, 0]])), return_counts=True)[1]

    pairs = np.stack([segments(length - noise), segments(noise)], axis=1).reshape(-1)
    turns = np.zeros(length, np.int8)
    turns[np.cumsum(pairs)[:-1]] = True
    return (np.cumsum(turns) % 2 == 1)[:length]


def flax_side(tokens: np.ndarray, dropped: np.ndarray, vocab_size: int, end: int) -> np.ndarray:
    """``(B, length)`` -> ``(B, width)``: a sentinel for a run of dropped tokens, -1 for its rest, a filter."""
    dropped = dropped.astype(np.int8)
    first = dropped - np.roll(dropped, 1, axis=-1) * dropped
    first[:, 0] = dropped[:, 0]
    numbers = np.where(first != 0, np.cumsum(first, axis=-1), first)
    sentinels = np.where(numbers != 0, vocab_size - numbers, 0) - (dropped - first)
    marked = np.where(sentinels != 0, sentinels, tokens)
    kept = marked[marked >= 0].reshape(len(tokens), -1)
    return np.concatenate([kept, np.full((len(tokens), 1), end, np.int32)], axis=-1)


def flax(
    tokens: np.ndarray, vocab_size: int, end: int, density: float = DENSITY, mean: float = MEAN
) -> tuple[np.ndarray, np.ndarray]:
    """Source and target, ``(B, S)`` and ``(B, T)``, of ``(B, length)`` tokens."""
    masks = np.asarray([flax_mask(tokens.shape[1], density, mean) for _ in range(len(tokens))])
    return flax_side(tokens, masks, vocab_size, end), flax_side(tokens, ~masks, vocab_size, end)
