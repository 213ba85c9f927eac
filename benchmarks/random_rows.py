"""Random rows and ready batches of long sequences against MosaicML Streaming, litData and Hugging Face datasets.

All sides hold the same rows on local disk, in warm caches, read them in the same random order with one thread,
and make the same int32 tensors, which are compared first. Rates are by the clock, and by the processor time of a side's
threads, which hardly depends on what else the machine does.

- ``rows``: stored tokens, padded.
- ``masked``: what an encoder-decoder takes: source, its mask, the decoder's input and labels, from text and the spans
  to hide in it, both as stored.
- ``ready``: the same, but the peers have stored source and target as they are, which is less work than ours.

Peers also run in the order in which they shuffle themselves, which suits them better than a random one. They live in an
environment of their own, named by ``--peers-python``, with torch, numpy, mosaicml-streaming, litdata and datasets.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from made_corpus import make_corpus, make_masks
from peer_readers import PEERS, WORKS, digest
from report import HEADINGS, Comparison, arguments, comparison_rows, machine, publish

from corpora.schemas.corpus import Corpus
from corpora.storage.ragged import Ragged
from objectives.api.examples import IGNORED
from objectives.api.mask_set import MaskSet
from objectives.api.protocol import load_objective
from objectives.api.special_tokens import BEGIN, DOCUMENT_SEPARATOR, END, PAD
from trainer.data.batch import collate
from trainer.data.config import DataConfig
from trainer.run.sources import open_source

HERE = os.path.dirname(os.path.abspath(__file__))
NAMES = {"mds": "MosaicML Streaming", "litdata": "litData", "datasets": "Hugging Face datasets"}
GOALS = {"mds": 12.0, "litdata": 18.0}
UNITS = "samples/s", "samples/CPU s"
PASSES = 10  # of farspan over all rows in a round, which then lasts about as long as one of a peer
Run = tuple[str, str, str]
"""System, kind of work and order of a measurement."""


def main() -> None:
    parser = arguments(__doc__.partition("\n")[0], rounds=9)
    parser.add_argument("--rows", type=int, default=2_048, help="sequences")
    parser.add_argument("--length", type=int, default=16_384, help="encoder positions")
    parser.add_argument("--target", type=int, default=1_024, help="decoder positions")
    parser.add_argument("--batch", type=int, default=8, help="sequences in a batch")
    parser.add_argument("--peers-python", metavar="PATH", required=True, help="a Python that has the peers")
    parser.add_argument("--peers", nargs="+", choices=PEERS, default=list(PEERS))
    parser.add_argument("--peers-dtype", choices=("uint16", "int32"), default="uint16", help="of the tokens they store")
    options = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="farspan-rows-") as folder, ExitStack() as stack:
        ours = Ours(folder, options.rows, options.length, options.target, options.batch)
        ours.write_for_peers(folder, options.peers_dtype)
        expected = {work: digest(make(rows) for rows in ours.batches[:20]) for work, make in ours.make.items()}
        peers = {name: stack.enter_context(started(options.peers_python, name, folder)) for name in options.peers}
        runs: dict[Run, Callable[[], float]] = {}
        for work in WORKS:
            runs[("farspan", work, "random")] = partial(ours.run, work)
            for name, peer in peers.items():
                found = peer.ask("digest", work)["digest"]
                assert found == expected[work], f"{NAMES[name]} makes other batches of {work}"
                for order in ("random", "shuffled"):
                    runs[(name, work, order)] = partial(peer.run, order, work)
        rates = measured(runs, len(ours.order), options.rounds)
    compared = [
        Comparison(
            f"{work}, random",
            f"{NAMES[name]}, {'random' if order == 'random' else 'its own order'}",
            unit,
            found[("farspan", work, "random")],
            found[(name, work, order)],
            GOALS.get(name) if order == "random" else None,
        )
        for unit, found in rates.items()
        for work in WORKS
        for name in peers
        for order in ("random", "shuffled")
    ]
    publish(
        f"Batches of {options.batch} from {len(ours.order):,} sequences of {options.length:,} and {options.target:,} "
        f"positions, one thread a side, peers store {options.peers_dtype}",
        HEADINGS,
        comparison_rows(compared),
        {**machine("numpy", "pyarrow", "numba", "torch"), **peer_versions(options.peers_python, options.peers)},
        options.json,
        {"sizes": vars(options), "comparisons": [{**vars(row), "ratio": row.ratio} for row in compared]},
    )


def measured(runs: Mapping[Run, Callable[[], float]], samples: int, rounds: int) -> dict[str, dict[Run, list[float]]]:
    """Samples a second, by the clock and by processor time, of each run in each round; one more round warms up."""
    rates: dict[str, dict[Run, list[float]]] = {unit: {name: [] for name in runs} for unit in UNITS}
    for turn in range(rounds + 1):
        for name, run in runs.items():
            start = time.perf_counter()
            processor = run()
            seconds = time.perf_counter() - start, processor
            if turn:
                for unit, second in zip(UNITS, seconds, strict=True):
                    rates[unit][name].append(samples * (PASSES if name[0] == "farspan" else 1) / second)
    return rates


class Ours:
    """The corpus with its masks; each way of ``make`` turns ``(n,)`` row numbers into named tensors."""

    def __init__(self, folder: str, rows: int, length: int, target: int, batch: int) -> None:
        corpus, masks = os.path.join(folder, "corpus"), os.path.join(folder, "masks")
        make_corpus(corpus, rows, length)
        span = load_objective("span", "bart_ls", {"target_length": target, "fit": "reduce"})
        make_masks(masks, corpus, span)
        self.corpus, self.masks, self.batch = Corpus(corpus), MaskSet(masks), batch
        self.data = DataConfig(
            corpus=corpus, masks=masks, source_length=length, target_length=target, source_multiple=length,
            target_multiple=target,
        )  # fmt: skip
        self.source = open_source(self.data)
        self.order = np.random.default_rng(1).permutation(len(self.corpus))
        self.batches = np.split(self.order, range(batch, len(self.order), batch))
        self.make = {"rows": self.rows, "masked": self.ready, "ready": self.ready}

    def rows(self, rows: np.ndarray) -> dict[str, torch.Tensor]:
        batch = torch.empty((len(rows), self.data.source_length), dtype=torch.int32)
        self.corpus.gather_tokens(rows, batch.numpy(), self.source.special[PAD])
        return {"tokens": batch}

    def ready(self, rows: np.ndarray) -> dict[str, torch.Tensor]:
        batch = collate(self.source.examples(rows), rows, self.data, self.source.special)
        names = ("source_ids", "source_padding_mask", "decoder_ids", "labels")
        return {name: tensor for name in names if (tensor := getattr(batch, name)) is not None}

    def run(self, work: str) -> float:
        """Make all batches ``PASSES`` times; the seconds of processor time."""
        start = time.process_time()
        for rows in self.batches * PASSES:
            self.make[work](rows)  # and drop it, as training does
        return time.process_time() - start

    def write_for_peers(self, folder: str, dtype: str) -> None:
        """The same sequences as peers store them for each work, with all that is needed to make batches of them."""
        count, special = len(self.order), self.source.special
        columns: dict[str, list[np.ndarray]] = {name: [] for work in WORKS.values() for name in work}
        for some in np.split(np.arange(count), range(64, count, 64)):
            rows, masks, made = self.corpus.take(some), self.masks.take(some), self.source.examples(some)
            for row in range(len(some)):
                borders, starts = rows.document_starts[row][1:], masks.span_starts[row]
                sample = {
                    "tokens": rows.tokens[row],
                    "text": np.insert(rows.tokens[row].astype(np.int32), borders, special[DOCUMENT_SEPARATOR]),
                    "starts": starts + np.searchsorted(borders, starts, side="right"),
                    "sizes": masks.span_lengths[row],
                    "source": made.source_ids[row, : made.source_lengths[row]],
                    "target": made.target_ids[row, : made.target_lengths[row]],
                }
                for name, values in sample.items():
                    columns[name].append(values)
        dtypes = {name: "int32" if name in ("starts", "sizes") else dtype for name in columns}
        for name, lists in columns.items():
            ragged = Ragged.from_rows(lists, np.dtype(dtypes[name]))
            np.save(os.path.join(folder, f"{name}.values.npy"), ragged.values)
            np.save(os.path.join(folder, f"{name}.offsets.npy"), ragged.offsets)
        np.save(os.path.join(folder, "order.npy"), self.order)
        settings = {
            "dtypes": dtypes,
            "batch": self.batch,
            "source_width": self.data.source_length,
            "target_width": self.data.target_length,
            "pad": special[PAD],
            "begin": special[BEGIN],
            "end": special[END],
            "start": special[self.data.decoder_start],
            "sentinel": int(special.sentinels[0]),
            "ignored": IGNORED,
        }
        with open(os.path.join(folder, "settings.json"), "w") as file:
            json.dump(settings, file)


@dataclass(frozen=True)
class Peer:
    """A running ``peer_readers.py``."""

    name: str
    process: subprocess.Popen[str]

    def run(self, order: str, work: str) -> float:
        """Make all batches; the seconds of processor time, of all its threads."""
        return self.ask(order, work)["seconds"]

    def ask(self, action: str, work: str) -> dict[str, Any]:
        assert self.process.stdin
        self.process.stdin.write(f"{action} {work}\n")
        self.process.stdin.flush()
        return self.answer()

    def answer(self) -> dict[str, Any]:
        assert self.process.stdout
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"{NAMES[self.name]} stopped with exit code {self.process.wait()}; its errors are above")
        return json.loads(line)


@contextmanager
def started(python: str, name: str, folder: str) -> Iterator[Peer]:
    command = [python, os.path.join(HERE, "peer_readers.py"), name, folder]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=sys.stderr, text=True, env=environment
    ) as process:
        peer = Peer(name, process)
        peer.answer()  # it has written its files
        yield peer


def peer_versions(python: str, peers: Sequence[str]) -> dict[str, str]:
    names = [PEERS[peer].distribution for peer in peers]
    code = f"import json; from importlib.metadata import version; print(json.dumps([version(n) for n in {names!r}]))"
    done = subprocess.run([python, "-c", code], check=True, capture_output=True, text=True)
    return dict(zip(names, json.loads(done.stdout), strict=True))


if __name__ == "__main__":
    main()
