"""Sentence boundaries of the default splitter on one core, beside nupunkt itself, by processor time.

Each round has text of its own and a new splitter. *First pass* is the rate at which it sees that text for the first
time; *second pass* is the rate with nupunkt's decisions about that text in memory. Compiled code is loaded before.
Boundaries are compared. Documents are runs of real sentences.
"""

# Threads are counted when numpy is imported.
# ruff: noqa: E402

from __future__ import annotations

import os
import time
from collections.abc import Callable
from itertools import islice

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ[_variable] = "1"

import numpy as np
from report import HEADINGS, Comparison, arguments, comparison_rows, machine, publish
from text import real_documents, recombined

from corpora.storage.ragged import Ragged
from corpora.text.sentences import SentenceSplitter, load_splitter

DOCUMENTS = 4_000  # of a round, about 1 kB each
AT_ONCE = 1_000
FIRST_GOAL, SECOND_GOAL = 8, 10
LOADING = ["He left. She stayed. " * 100_000]  # enough that the splitter loads compiled code


def seconds(run: Callable[[], Ragged]) -> tuple[float, Ragged]:
    """Processor time of a call, and its result."""
    started = time.process_time()
    result = run()
    return time.process_time() - started, result


def ours(splitter: SentenceSplitter, texts: list[str]) -> Ragged:
    """Boundaries in blocks, as ``farspan documents`` finds them."""
    blocks = [texts[i : i + AT_ONCE] for i in range(0, len(texts), AT_ONCE)]
    return Ragged.concatenate([splitter.byte_boundaries(block) for block in blocks])


def nupunkt(splitter: SentenceSplitter, texts: list[str]) -> Ragged:
    """The same from nupunkt's spans."""
    return SentenceSplitter("nupunkt", "", splitter.spans).byte_boundaries(texts)


def main() -> None:
    options = arguments(__doc__.partition("\n")[0], rounds=3).parse_args()
    documents = recombined(real_documents(), seed=0)
    rates: dict[str, list[float]] = {"first": [], "second": [], "nupunkt": []}
    for _ in range(options.rounds):
        texts = list(islice(documents, DOCUMENTS))
        megabytes = sum(len(text.encode()) for text in texts) / 1e6
        splitter, peer = load_splitter("nupunkt"), load_splitter("nupunkt")
        splitter.byte_boundaries(LOADING)
        times = {
            "first": seconds(lambda: ours(splitter, texts)),  # noqa: B023
            "second": seconds(lambda: ours(splitter, texts)),  # noqa: B023
            "nupunkt": seconds(lambda: nupunkt(peer, texts)),  # noqa: B023
        }
        for name, (spent, boundaries) in times.items():
            rates[name].append(megabytes / spent)
            assert np.array_equal(boundaries.values, times["nupunkt"][1].values)
            assert np.array_equal(boundaries.offsets, times["nupunkt"][1].offsets)
    rows = [
        Comparison("first pass", "nupunkt", "MB/s", rates["first"], rates["nupunkt"], FIRST_GOAL),
        Comparison("second pass", "nupunkt", "MB/s", rates["second"], rates["nupunkt"], SECOND_GOAL),
    ]
    publish(
        "Sentence boundaries, one core, processor time",
        HEADINGS,
        comparison_rows(rows),
        machine("nupunkt", "numba", "numpy"),
        options.json,
        {row.ours: row.ratios for row in rows},
    )


if __name__ == "__main__":
    main()
