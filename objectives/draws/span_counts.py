"""Numbers of hidden tokens and of spans in span corruption, by the length of a row.

Source: Raffel et al. 2020 (T5), section 3.1.4, and the published code (``random_spans_helper``).
"""

from __future__ import annotations

from bisect import bisect_right

import numpy as np

from corpora.errors import FarspanError


def noise_counts(tokens: np.ndarray, density: np.ndarray | float) -> np.ndarray:
    """Count the tokens to hide in rows of ``tokens`` tokens, ``(n,)`` int64: at least 1, never all; 0 of a single."""
    return np.maximum(np.clip(np.rint(tokens * density), 1, tokens - 1), 0).astype(np.int64)


def span_counts(tokens: np.ndarray, noise: np.ndarray, means: np.ndarray | float, free: bool = False) -> np.ndarray:
    """Count the spans of ``noise`` hidden tokens, ``(n,)`` int64: at most as many as visible tokens can separate.

    ``free``: True if a row may start and end with a span, which allows one more.
    """
    spans = np.maximum(np.rint(noise / means), noise > 0)
    return np.minimum(spans, tokens - noise + free).astype(np.int64)


def span_lengths(tokens: int, density: float, mean: float) -> tuple[int, int]:
    """Compute source and target length of one document of ``tokens`` tokens, with ``<eos>`` and without ``<bos>``.

    For example ``span_lengths(568, 0.15, 3) == (512, 114)``, T5's setting.
    """
    size = np.array([tokens])
    noise = noise_counts(size, density)
    spans = span_counts(size, noise, mean)
    return int((size - noise + spans)[0]) + 1, int((noise + spans + (noise > 0))[0])


def tokens_for(input_length: int, density: float, mean: float) -> int:
    """Compute the maximum tokens of one document whose source fits ``input_length``: 568 for (512, 0.15, 3)."""
    if input_length < 1:
        raise FarspanError(f"input_length is {input_length}; give at least 1, the place of <eos>")
    # The source grows with the tokens, and contains (1 - density) of them.
    candidates = range(int((input_length + 1) / (1 - density)) + 1)
    tokens = bisect_right(candidates, input_length, key=lambda size: span_lengths(size, density, mean)[0]) - 1
    source, target = span_lengths(tokens, density, mean)
    # As T5's helper does, so that source and target are equally long if half of the text is hidden.
    return tokens - 1 if density == 0.5 and target > source else tokens
