"""The nearest neighbours of every vector of a large cluster: list by list, against FAISS's inverted files.

The same made vectors (``synthetic.py``), lists and visits on every side, one thread; training the lists is part of the
work. Recall is that of the ten nearest and of all, over 500 vectors, against an exact search. What counts is time at
equal recall.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import faiss
import numpy as np
from report import arguments, machine, publish
from synthetic import DIMENSION, Topics, blocks
from threadpoolctl import threadpool_limits

from corpora.retrieval.knn import list_count, nearest, search
from corpora.retrieval.options import Search
from corpora.retrieval.vector_rows import VectorRows

QUERIES = 500


def farspan(vectors: np.ndarray, options: Search) -> np.ndarray:
    return search(VectorRows.from_array(vectors), options).rows


def inverted_file(vectors: np.ndarray, options: Search, quantizer: int | None) -> np.ndarray:
    """``IndexIVFFlat``, or ``IndexIVFScalarQuantizer``, asked for all vectors in one batch."""
    floats = vectors.astype(np.float32)
    coarse, lists = faiss.IndexFlatIP(DIMENSION), list_count(options, len(vectors))
    metric = faiss.METRIC_INNER_PRODUCT
    index: Any = faiss.IndexIVFFlat(coarse, DIMENSION, lists, metric)
    if quantizer is not None:
        index = faiss.IndexIVFScalarQuantizer(coarse, DIMENSION, lists, quantizer, metric)
    index.cp.niter, index.cp.max_points_per_centroid = 10, 64  # as ours
    index.train(floats)
    index.add(floats)
    index.nprobe = options.probes
    found = index.search(floats, options.k + 1)[1]
    own = found == np.arange(len(found))[:, None]
    own[:, -1] |= ~own.any(axis=1)  # equal ones may push a vector out of its own list
    return found[~own].reshape(len(found), options.k)


def recall(found: np.ndarray, true: np.ndarray, rows: np.ndarray, depth: int) -> float:
    hits = [len(np.intersect1d(found[row, :depth], best[:depth])) for row, best in zip(rows, true, strict=True)]
    return float(np.mean(hits)) / depth


def main() -> None:
    parser = arguments(__doc__.partition("\n")[0], rounds=1)
    parser.add_argument("--vectors", type=int, default=100_000, help="in the cluster")
    parser.add_argument("--k", type=int, default=100, help="neighbours")
    parser.add_argument("--probes", type=int, default=16, help="lists a vector visits")
    options = parser.parse_args()
    settings = Search(k=options.k, exact_up_to=1, probes=options.probes)
    topics = Topics(options.vectors)
    vectors = np.concatenate([topics.vectors(block, size)[0] for block, size in blocks(options.vectors)])
    half = faiss.ScalarQuantizer.QT_fp16
    sides: dict[str, Callable[[], np.ndarray]] = {
        "farspan, list by list": lambda: farspan(vectors, settings),
        "FAISS IndexIVFScalarQuantizer, fp16": lambda: inverted_file(vectors, settings, half),
        "FAISS IndexIVFFlat": lambda: inverted_file(vectors, settings, None),
    }
    sample = (np.arange(QUERIES) * len(vectors) // QUERIES).astype(np.int32)
    faiss.omp_set_num_threads(1)
    with threadpool_limits(1):
        search(VectorRows.from_array(vectors[:2000]), settings)  # compile
        whole = VectorRows.from_array(vectors)
        true = nearest(whole, whole[sample], options.k, sample).rows
        rows, measured = [], {}
        for name, side in sides.items():
            seconds = []
            for _ in range(options.rounds):
                start = time.perf_counter()
                found = side()
                seconds.append(time.perf_counter() - start)
            shares = [recall(found, true, sample, depth) for depth in (10, options.k)]
            measured[name] = {"seconds": seconds, "recall": shares}
            ours = measured["farspan, list by list"]["seconds"]
            times = [theirs / own for theirs, own in zip(seconds, ours, strict=True)]
            rows.append(
                (name, f"{np.median(seconds):.1f}", f"{np.median(times):.1f}x", *(f"{share:.3f}" for share in shares))
            )
    publish(
        f"{options.k} neighbours of {len(vectors):,} x {DIMENSION}, {list_count(settings, len(vectors))} lists, "
        f"{options.probes} visited, one thread",
        ("side", "seconds", "of ours", "recall of 10", f"recall of {options.k}"),
        rows,
        machine("faiss-cpu", "numba", "numpy"),
        options.json,
        measured,
    )


if __name__ == "__main__":
    main()
