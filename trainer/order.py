"""Which sequence is sample n of the run: a formula, so there is no shuffle buffer to save or to lose."""

from __future__ import annotations

import numpy as np

from corpora.keyed import id_keys, make_key

_ROUNDS = 16  # below that, ranges of a few positions are visibly uneven


def permute(positions: np.ndarray, size: int, key: bytes) -> np.ndarray:
    """A pseudo-random permutation of ``range(size)``, evaluated at ``positions``.

    A Feistel network over the least power of two that holds ``size``, walked along its cycle until it lands below
    ``size`` (Black and Rogaway 2002, "Ciphers with arbitrary finite domains"); at most half of the domain is walked
    over, so two evaluations a position are enough on average.

    Args:
        positions: ``(n,)`` integers in ``[0, size)``.
        size: of the permuted range.
        key: of 16 bytes or more; another key is another permutation.

    Returns:
        ``(n,)`` int64.
    """
    bits = max(int(size) - 1, 1).bit_length()
    keys = id_keys(key, [str(number) for number in range(_ROUNDS)])[:, 0]
    images = np.asarray(positions).astype(np.uint64)
    out = np.arange(len(images))
    current = images.copy()
    while len(out):
        current = _feistel(current, bits, keys)
        inside = current < size
        images[out[inside]] = current[inside]
        current, out = current[~inside], out[~inside]
    return images.astype(np.int64)


def _feistel(x: np.ndarray, bits: int, keys: np.ndarray) -> np.ndarray:
    """A bijection of ``[0, 2**bits)``: each half in turn is XORed with a function of the other one, uint64."""
    low_bits = np.uint64(bits // 2)
    low_mask = (np.uint64(1) << low_bits) - np.uint64(1)
    high_mask = (np.uint64(1) << np.uint64(bits - bits // 2)) - np.uint64(1)
    high, low = x >> low_bits, x & low_mask
    for number, key in enumerate(keys):
        if number % 2:
            low = low ^ (_mix(high ^ key) & low_mask)
        else:
            high = high ^ (_mix(low ^ key) & high_mask)
    return (high << low_bits) | low


def _mix(x: np.ndarray) -> np.ndarray:
    """The finaliser of splitmix64 (Steele, Lea and Flood 2014), uint64; multiplication wraps."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def sample_indices(samples: np.ndarray, size: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Sample n of the run -> (epoch, index); every epoch is a permutation of its own.

    Args:
        samples: ``(n,)`` sample numbers, counted from 0 over the whole run.
        size: sequences in the data.
        seed: of the run.

    Returns:
        ``(n,)`` int64 epochs and ``(n,)`` int64 indices into the data.
    """
    epochs, positions = np.divmod(np.asarray(samples, np.int64), size)
    indices = np.empty_like(positions)
    for epoch in np.unique(epochs):
        chosen = epochs == epoch
        indices[chosen] = permute(positions[chosen], size, make_key(seed, "order", {"epoch": int(epoch)}))
    return epochs, indices


def step_samples(step: int, batch_size: int, rank: int = 0, world_size: int = 1) -> np.ndarray:
    """The sample numbers of a step, counted from 0, that fall to ``rank``: ``(about batch_size / world_size,)`` int64.

    The ranks' shares, one after the other, are ``[step * batch_size, (step + 1) * batch_size)``.
    """
    first, last = (batch_size * share // world_size for share in (rank, rank + 1))
    return np.arange(step * batch_size + first, step * batch_size + last)
