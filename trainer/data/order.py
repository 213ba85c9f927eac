"""The order of samples: sample n of the run in closed form, without a shuffle buffer.

A sample number determines the source and the sample's number in that source; the latter determines the epoch and the
position in it; the source's permutation of that epoch then gives the sequence.

A permutation is of all sequences of the source, or of a few shards at a time: the epoch's order of the shards is drawn,
then they are taken in groups, and the sequences of a group are permuted. So a run reads each shard once an epoch, as
with MosaicML Streaming's block-wise shuffles, also without a buffer.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from corpora.keyed import id_keys, make_key

_ROUNDS = 16  # with fewer rounds, permutations of a few positions are visibly uneven
_UNIT = 1 << 30  # weights are whole multiples of 1 / _UNIT, so that counts are exact for any sample number


class Share(NamedTuple):
    """The properties of a source that the order depends on."""

    name: str  # key of its permutations, so that sources of equal size differ
    size: int  # number of sequences, at least 1
    weight: float = 1.0  # proportion of the samples relative to the other sources' weights, above 0
    shards: tuple[int, ...] = ()  # sequences of each shard, if they are permuted by groups of shards
    together: int = 0  # shards in a group; 0 permutes all sequences


class Places(NamedTuple):
    """Source, epoch and sequence index of each sample, ``(n,)`` int64 each."""

    sources: np.ndarray
    epochs: np.ndarray
    indices: np.ndarray


def permute(positions: np.ndarray, size: int, key: bytes) -> np.ndarray:
    """Evaluate a pseudo-random permutation of ``range(size)`` at ``positions``, ``(n,)`` integers; ``(n,)`` int64.

    A Feistel network over the smallest power of two that holds ``size``, applied repeatedly until the result is below
    ``size`` (cycle walking: Black and Rogaway 2002, "Ciphers with arbitrary finite domains"). At most half of the
    domain is skipped, so two evaluations per position suffice on average. Different keys, of at least 16 bytes, give
    different permutations.
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
    """Apply a bijection of ``[0, 2**bits)``, uint64: each half in turn is XORed with a function of the other."""
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
    """Apply the finaliser of splitmix64 (Steele, Lea and Flood 2014), uint64; multiplication wraps."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def mix(samples: np.ndarray, weights: Sequence[float]) -> tuple[np.ndarray, np.ndarray]:
    """Assign samples to sources by error diffusion, so that every prefix follows the weights of the sources.

    Among the first n samples, the heaviest source has ``n * weight`` rounded to the nearest integer; the others divide
    the rest in the same way, in descending order of weight. For any n, the number of samples of a source differs from
    ``n * weight`` by at most 1/2 with two sources, 1 with three, and ``(2 + 1/2 + ... + 1/(k - 2)) / 2`` with k.

    Returns, for ``(n,)`` sample numbers, ``(n,)`` int64 sources and ``(n,)`` int64 numbers within their source.
    """
    scaled = np.asarray(weights, np.float64) / np.sum(weights)
    parts = np.maximum(np.rint(scaled * _UNIT), 1).astype(np.int64)
    sources, numbers = np.empty((2, len(samples)), np.int64)
    # (m,) each: positions in the result without a source yet, and their numbers among samples of the remaining sources
    places, left, rest = np.arange(len(samples)), np.array(samples, np.int64), int(parts.sum())
    for source in np.argsort(-parts, kind="stable").tolist():
        part = int(parts[source])
        before = _round_share(left, part, rest)
        own = _round_share(left + 1, part, rest) > before
        sources[places[own]], numbers[places[own]] = source, before[own]
        places, left, rest = places[~own], (left - before)[~own], rest - part
    return sources, numbers


def _round_share(counts: np.ndarray, part: int, whole: int) -> np.ndarray:
    """Round ``counts * part / whole``, halves up, without overflowing 64 bits."""
    wholes, over = np.divmod(counts, whole)
    return wholes * part + (2 * over * part + whole) // (2 * whole)


def sample_places(samples: np.ndarray, shares: Sequence[Share], seed: int) -> Places:
    """Compute source, epoch and sequence of ``(n,)`` samples, counted from 0 over the run with ``seed``.

    Every epoch of every source has its own permutation.
    """
    sources, numbers = mix(samples, [share.weight for share in shares])
    epochs, positions = np.divmod(numbers, np.array([share.size for share in shares], np.int64)[sources])
    indices = np.empty_like(positions)
    for source, epoch in np.unique(np.stack([sources, epochs], 1), axis=0).tolist():
        chosen = (sources == source) & (epochs == epoch)
        indices[chosen] = _permute(positions[chosen], shares[source], seed, epoch)
    return Places(sources, epochs, indices)


def _permute(positions: np.ndarray, share: Share, seed: int, epoch: int) -> np.ndarray:
    """Sequences at the ``(n,)`` positions of an epoch."""
    facts: dict[str, Any] = {"source": share.name, "epoch": epoch}
    if not share.together:
        return permute(positions, share.size, make_key(seed, "order", facts))
    order = _shard_order(share.shards, make_key(seed, "order of shards", facts))
    # (shards + 1,), first position of each shard if its group were not permuted
    starts = np.cumsum([0, *(share.shards[shard] for shard in order)])
    firsts = np.cumsum([0, *share.shards])[order]  # first sequence of each
    edges = np.append(starts[: -1 : share.together], share.size)
    groups = np.searchsorted(edges, positions, side="right") - 1
    indices = np.empty_like(positions)
    for group in np.unique(groups).tolist():
        own, first = groups == group, edges[group]
        key = make_key(seed, "order", {**facts, "group": group})
        places = first + permute(positions[own] - first, int(edges[group + 1] - first), key)
        shards = np.searchsorted(starts, places, side="right") - 1
        indices[own] = firsts[shards] + places - starts[shards]
    return indices


@lru_cache(maxsize=16)
def _shard_order(shards: tuple[int, ...], key: bytes) -> np.ndarray:
    return permute(np.arange(len(shards)), len(shards), key)


def partition(batch_size: int, micro_batch_size: int, rank: int, world_size: int) -> list[slice | None]:
    """Divide the samples of a step into the micro-batches of one rank.

    Micro-batches are cut from the global batch, so their contents depend on neither the rank nor the number of ranks;
    each rank gets consecutive ones. All ranks run the same number of passes,
    ``ceil(ceil(batch_size / micro_batch_size) / world_size)``: the last slice of a rank is None if the micro-batches
    cannot be divided evenly.
    """
    count = -(-batch_size // micro_batch_size)
    first, last = (count * share // world_size for share in (rank, rank + 1))
    cuts = [slice(k * micro_batch_size, min((k + 1) * micro_batch_size, batch_size)) for k in range(first, last)]
    return [*cuts, *[None] * (-(-count // world_size) - len(cuts))]
