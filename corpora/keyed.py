"""Keyed randomness: every draw depends on an id, never on the worker, the position or the time.

A *key* is blake2b over (seed, purpose, configuration); an id's own key is blake2b over (key, id). Draws come from
Philox4x64-10, a counter-based generator: ``philox_blocks`` inside numba gives the same bits as numpy's.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from corpora.compiled import compiled

_M0, _M1 = np.uint64(0xD2E7470EE14C6C93), np.uint64(0xCA5A826395121157)
_W0, _W1 = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBB67AE8584CAA73B)
_LOW, _32 = np.uint64(0xFFFFFFFF), np.uint64(32)


def make_key(seed: int, purpose: str, configuration: Mapping[str, Any] | None = None) -> bytes:
    """Return a 16-byte hash of (seed, purpose, configuration), the configuration as canonical JSON."""
    text = json.dumps([seed, purpose, configuration or {}], sort_keys=True, separators=(",", ":"))
    return hashlib.blake2b(text.encode(), digest_size=16).digest()


def id_keys(key: bytes, ids: Iterable[bytes | str]) -> np.ndarray:
    """Return one 128-bit key per id, ``(n, 2)`` uint64: blake2b(id) keyed with ``key``."""
    keyed = hashlib.blake2b(digest_size=16, key=key)
    digests = []
    for name in ids:
        digest = keyed.copy()  # cheaper than hashing the key again for every id
        digest.update(name.encode() if isinstance(name, str) else name)
        digests.append(digest.digest())
    return np.frombuffer(b"".join(digests), "<u8").reshape(-1, 2)


def select_share(key: bytes, ids: Iterable[bytes | str], share: float) -> np.ndarray:
    """Return ``(n,)`` bool: True for ids whose hash is in the first ``share`` of all hashes; 1 or more draws all."""
    return id_keys(key, ids)[:, 0] <= np.uint64(min(int(share * 2.0**64), 2**64 - 1))


@compiled(small=True, inline="always")
def _multiply_high_low(a: np.uint64, b: np.uint64) -> tuple[np.uint64, np.uint64]:
    a0, a1, b0, b1 = a & _LOW, a >> _32, b & _LOW, b >> _32
    middle = a1 * b0 + ((a0 * b0) >> _32)
    other = a0 * b1 + (middle & _LOW)
    return a1 * b1 + (middle >> _32) + (other >> _32), a * b


@compiled(small=True)
def philox_blocks(key0: np.uint64, key1: np.uint64, first: np.uint64, out: np.ndarray) -> None:
    """Write the n blocks from ``first`` on into ``out``, ``(n, 4)`` uint64; numpy's Philox starts at block 1.

    Each round runs over all blocks, so that the compiler vectorises it. Source: Salmon et al. 2011, "Parallel random
    numbers: as easy as 1, 2, 3", Philox4x64 with 10 rounds.
    """
    x0, x1 = np.empty(len(out), np.uint64), np.zeros(len(out), np.uint64)
    x2, x3 = np.zeros(len(out), np.uint64), np.zeros(len(out), np.uint64)
    for i in range(len(out)):
        x0[i] = first + np.uint64(i)
    k0, k1 = np.uint64(key0), np.uint64(key1)
    for _ in range(10):
        for i in range(len(out)):
            high0, low0 = _multiply_high_low(_M0, x0[i])
            high1, low1 = _multiply_high_low(_M1, x2[i])
            x0[i], x1[i], x2[i], x3[i] = high1 ^ x1[i] ^ k0, low1, high0 ^ x3[i] ^ k1, low0
        k0 += _W0
        k1 += _W1
    for i in range(len(out)):
        out[i, 0], out[i, 1], out[i, 2], out[i, 3] = x0[i], x1[i], x2[i], x3[i]
