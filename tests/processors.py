"""Digests of what must be the same on every processor; run as a program, they are printed.

python -m tests.processors digests OBJECTIVE...
python -m tests.processors COMMAND...   runs a command on the other processor
"""

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[1]


def other_processor() -> dict[str, str]:
    """The environment of a child process whose libraries take an x86-64 processor for one of 2009.

    numpy, torch, OpenBLAS, numba and the C library choose other kernels then. Where the processor is another kind, the
    settings do nothing.
    """
    built: Any = import_module("numpy._core._multiarray_umath")

    found = [name for name in built.__cpu_dispatch__ if built.__cpu_features__.get(name)]
    return {
        **os.environ,
        "ATEN_CPU_CAPABILITY": "default",
        "GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX2,-FMA,-FMA4",
        "NPY_DISABLE_CPU_FEATURES": " ".join(found),
        "NUMBA_CPU_NAME": "generic",
        "OPENBLAS_CORETYPE": "Prescott",
    }


def digests_elsewhere(*objectives: str) -> dict[str, str]:
    """``digests`` of a child process on ``other_processor``."""
    command = [sys.executable, "-m", "tests.processors", "digests", *objectives]
    child = subprocess.run(command, cwd=ROOT, env=other_processor(), capture_output=True, text=True, check=False)
    if child.returncode:
        raise RuntimeError(child.stderr)
    return json.loads(child.stdout.splitlines()[-1])


def digests(*objectives: str) -> dict[str, str]:
    """A digest of each result, with masks of ``objectives``; ``matrix product`` and ``cosines`` may differ."""
    thirds = _vectors().astype(np.float32) / 3  # whose products are rounded, unlike those of the vectors
    return {
        "matrix product": _digest(thirds @ thirds.T),
        "cosines": _digest(np.cos(np.arange(100_000) * 0.001)),
        "neighbours": _digest(*neighbours()),
        "labels of centroids": _digest(*labels()),
        "scores by logarithms": _digest(*scores_by_logarithms()),
        "normal draws": _digest(normal_draws()),
        **{f"masks of {name}": _digest(*arrays) for name, arrays in masks(*objectives)},
    }


def _digest(*arrays: np.ndarray) -> str:
    found = hashlib.sha256()
    for array in arrays:
        found.update(f"{array.dtype}{array.shape}".encode() + np.ascontiguousarray(array).tobytes())
    return found.hexdigest()


def _vectors() -> np.ndarray:
    """``(1500, 47)`` float16; a third of them equal."""
    numbers = np.random.Philox(3).random_raw(1500 * 47).reshape(1500, 47) >> np.uint64(52)
    vectors = (numbers.astype(np.int64) - 2048).astype(np.float32) * 2.0**-14
    vectors[::3] = vectors[1]
    return vectors.astype(np.float16)


def neighbours() -> list[np.ndarray]:
    from corpora.retrieval.knn import search
    from corpora.retrieval.options import Search
    from corpora.retrieval.vector_rows import VectorRows, norms

    rows = VectorRows.from_array(_vectors())
    found = search(rows, Search(k=30))
    return [found.rows, found.products, norms(rows)]


def labels() -> list[np.ndarray]:
    """Of vectors of any float32 and centroids in groups that hardly differ: the rounding of a sum decides."""
    from corpora.retrieval.kmeans import assign

    vectors = _vectors().astype(np.float32) / np.float32(3)
    centroids = np.repeat(vectors[1:60:2], 4, axis=0)
    centroids[:, ::5] *= np.tile(1 + np.arange(4, dtype=np.float32) * 2.0**-23, 30)[:, None]
    return [assign(vectors, centroids, spherical) for spherical in (True, False)]


def scores_by_logarithms() -> list[np.ndarray]:
    from corpora.storage.ragged import Ragged
    from objectives.rouge.sentence_scores import select_greedily, sentence_scores
    from objectives.rouge.words import token_words

    ids = np.sort((np.random.Philox(5).random_raw(24_000) % np.uint64(89)) ** np.uint64(2) % np.uint64(53))
    ids = ids[np.argsort(np.random.Philox(6).random_raw(24_000))].astype(np.int32)
    tokens = Ragged.from_lengths(ids, np.full(4, 6000))
    words = token_words(tokens, Ragged.from_rows([np.arange(0, 6000, 17)] * 4, np.int32))
    order, scores = select_greedily(words, np.full(4, 20), counts="log")
    return [sentence_scores(words, counts="log").values, order.values, scores.values]


def normal_draws() -> np.ndarray:
    from objectives.draws.independent import normal

    return normal(np.random.Philox(7).random_raw(200_000).reshape(-1, 2))


def masks(*objectives: str) -> Iterator[tuple[str, list[np.ndarray]]]:
    """Masks of objectives, with every preset, and with tools that need no model."""
    from corpora.keyed import make_key
    from objectives.api.protocol import OBJECTIVES, equip, load_objective
    from tests.factories import make_sequences
    from tests.toy_tools import TOOLS

    batch = make_sequences([900, 700, 1500, 3], 4, clusters=True, vocab=400)
    for name in objectives:
        for preset in (None, *OBJECTIVES.presets()[name]):
            arrow = equip(load_objective(name, preset), TOOLS).mask(batch, make_key(0, "processors")).to_arrow()
            yield f"{name}, {preset}", [np.frombuffer(json.dumps(arrow.to_pylist(), default=repr).encode(), np.uint8)]


if __name__ == "__main__":
    if sys.argv[1] != "digests":
        os.execvpe(sys.argv[1], sys.argv[1:], other_processor())
    print(json.dumps(digests(*sys.argv[2:])))
