"""Padding, cut documents and speed of the policies of packing, and the figure of docs/corpora.md.

Documents have log-normal lengths with a median of 665 tokens and a sigma of 1.3, in buckets of 16 million tokens, as
the shards of a corpus. The peer of ``best-fit`` is a restatement in Python: bisection in a sorted list of free spaces.
"""

from __future__ import annotations

import argparse
import time
from bisect import bisect_left, insort

import numpy as np

from corpora.packing.best_fit import best_fit_parts
from corpora.packing.concatenate import greedy_parts
from corpora.packing.options import Packing, PackingPolicy
from corpora.packing.windows import Windows
from pipelines.figures import grid, save, thousands, use_style
from pipelines.shuffle.corpus_shard import SHARD_TOKENS

POLICIES: tuple[PackingPolicy, ...] = ("concatenate", "whole-documents", "best-fit")
LENGTHS = (4_096, 16_384, 65_536)
BUCKETS = 8


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--figure", help="file to draw, such as docs/figures/packing.svg")
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    buckets = [draw_bucket(rng) for _ in range(BUCKETS)]
    print(
        "| positions | policy | padding | documents cut | left out | ns a piece | peer |\n|---|---|---|---|---|---|---|"
    )
    padding: dict[tuple[str, int], float] = {}
    cut: dict[tuple[str, int], float] = {}
    for length in LENGTHS:
        for policy in POLICIES:
            packing = Packing(sequence_length=length, packing=policy)
            totals = np.sum([measure(bucket, packing) for bucket in buckets], axis=0)
            rows, tokens, parts, cuts, documents, kept = totals.tolist()
            padding[policy, length] = 1 - (tokens + parts) / (rows * packing.capacity)
            cut[policy, length] = cuts / documents
            speed = " | "
            if policy == "best-fit":
                seconds, peer = times(buckets[0], packing)
                speed = f"{seconds * 1e9:.0f} | {peer / seconds:.0f}x"
            print(
                f"| {length:,} | {policy} | {padding[policy, length]:.3%} | {cut[policy, length]:.2%} | "
                f"{1 - kept / documents:.2%} | {speed} |"
            )
    if options.figure:
        draw(options.figure, padding, cut)


def draw_bucket(rng: np.random.Generator) -> np.ndarray:
    """Token counts of the documents of one shard."""
    lengths = np.exp(rng.normal(np.log(665), 1.3, 20_000)).astype(np.int64) + 1
    return lengths[np.cumsum(lengths) <= SHARD_TOKENS]


def measure(lengths: np.ndarray, packing: Packing) -> tuple[int, ...]:
    """Rows, tokens, parts, cut documents, documents, and documents that are kept."""
    kept = lengths[packing.keeps(lengths)]
    if packing.packing == "best-fit":
        documents, _, sizes = Windows.of(packing).cut(kept)
        rows = best_fit_parts(sizes, packing.capacity, packing.room_per_document)[0]
    else:
        split = packing.packing == "concatenate"
        rows, documents, _, sizes = greedy_parts(kept, packing.capacity, packing.room_per_document, split)
    cuts = int(np.count_nonzero(np.bincount(documents) > 1))
    return int(rows.max()) + 1, int(sizes.sum()), len(sizes), cuts, len(lengths), len(kept)


def times(lengths: np.ndarray, packing: Packing) -> tuple[float, float]:
    """Seconds a piece of farspan and of the peer, the best of several rounds each; the two need as many rows."""
    sizes = Windows.of(packing).cut(lengths)[2]
    ours, theirs = [], []
    for _ in range(9):
        start = time.perf_counter()
        rows = best_fit_parts(sizes, packing.capacity, packing.room_per_document)[0]
        ours.append(time.perf_counter() - start)
    for _ in range(3):
        start = time.perf_counter()
        count = bisected(sizes.tolist(), packing.capacity, packing.room_per_document)
        theirs.append(time.perf_counter() - start)
        assert count == rows[-1] + 1
    return min(ours) / len(sizes), min(theirs) / len(sizes)


def bisected(sizes: list[int], capacity: int, reserved: int) -> int:
    """Best-fit decreasing in plain Python; return the number of rows."""
    free: list[int] = []
    rows = 0
    for size in sorted(sizes, reverse=True):
        place = bisect_left(free, size + reserved)
        if place < len(free):
            left = free.pop(place)
        else:
            left = capacity
            rows += 1
        insort(free, left - size - reserved)
    return rows


def draw(path: str, padding: dict[tuple[str, int], float], cut: dict[tuple[str, int], float]) -> None:
    """Draw padding and cut documents as bars, a group for each length of rows."""
    with use_style() as plt:
        figure, axes = grid(plt, 2)
        for axis, title, shares in zip(axes, ("padding (%)", "documents cut (%)"), (padding, cut), strict=True):
            for number, policy in enumerate(POLICIES):
                heights = [100 * shares[policy, length] for length in LENGTHS]
                bars = axis.bar(np.arange(len(LENGTHS)) + 0.27 * (number - 1), heights, 0.25, label=policy)
                axis.bar_label(bars, [f"{height:.2g}" for height in heights], fontsize=6)
            axis.set_title(title)
            axis.set_xticks(range(len(LENGTHS)), [thousands(length) for length in LENGTHS])
            axis.set_xlabel("positions of a row")
        axes[1].legend(frameon=False)
        save(plt, figure, path)


if __name__ == "__main__":
    main()
