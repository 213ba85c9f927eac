"""Span corruption of long sequences on one core: mask, source and target against the usual collators.

All sides do the same work on the same tokens, and are checked first: own draws give equal lengths, and one and the same
mask gives the same source and target. The collators get tokens of the type they work on, so they convert nothing.
"""

from __future__ import annotations

import one_thread  # isort: skip  (before numpy)

from collections.abc import Callable

import numpy as np
import pyarrow as pa
from report import HEADINGS, Comparison, arguments, comparison_rows, in_turn, machine, publish
from t5_collators import flax, flax_side, t5, t5_pair

from corpora.keyed import make_key
from corpora.schemas.sequences import NO_CLUSTER, SequenceBatch
from corpora.storage.ragged import Ragged
from objectives.api.protocol import CorpusFacts, load_objective
from objectives.api.special_tokens import END

VOCAB = 32_000
OWNED = {"<pad>": 0, "<eos>": 1, "<bos>": 2}
CALLS = 40  # of the fast sides in a round, which then lasts about as long as that of a collator


class Sides:
    """All sides over the same ``(batch, length)`` tokens."""

    def __init__(self, batch: int, length: int, density: float, mean: float) -> None:
        self.rng = np.random.default_rng(0)
        tokens = self.rng.integers(3, VOCAB, (batch, length))
        self.int32, self.int64, self.copied = tokens.astype(np.int32), tokens, np.empty((batch, length), np.int32)
        self.rows = one_document_rows(tokens.astype(np.uint16))
        self.objective = load_objective("span", "t5", {"density": density, "mean_span_lengths": [mean]})
        self.setting = {"density": density, "mean": mean}
        self.special = self.objective.validate(CorpusFacts(VOCAB, OWNED, length + 2, length, 1))
        self.keys = 0
        self.masks = self.objective.mask(self.rows, self.next_key())

    def next_key(self) -> bytes:
        """Another one for every call, so that no side meets the same spans twice."""
        self.keys += 1
        return make_key(self.keys, "benchmark")

    def farspan(self) -> tuple[np.ndarray, np.ndarray]:
        examples = self.objective.render(self.rows, self.objective.mask(self.rows, self.next_key()), self.special)
        return examples.source_ids, examples.target_ids

    def render(self) -> tuple[np.ndarray, np.ndarray]:
        examples = self.objective.render(self.rows, self.masks, self.special)
        return examples.source_ids, examples.target_ids

    def t5(self) -> tuple[np.ndarray, np.ndarray]:
        return t5(self.int32, self.special.vocab_size, self.special[END], self.rng, **self.setting)

    def flax(self) -> tuple[np.ndarray, np.ndarray]:
        return flax(self.int64, self.special.vocab_size, self.special[END], **self.setting)

    def copy(self) -> None:
        np.copyto(self.copied, self.int32)

    def check(self) -> None:
        """Equal lengths from own draws; equal ids from the same mask."""
        shapes = {tuple(side.shape for side in make()) for make in (self.farspan, self.t5, self.flax)}
        assert len(shapes) == 1, f"the sides give different lengths: {shapes}"
        masks = hidden_positions(self.masks.span_starts, self.masks.span_lengths, self.int32.shape[1])
        source, target = self.render()
        vocab_size, end = self.special.vocab_size, self.special[END]
        for row, mask in enumerate(masks):
            pair = t5_pair(self.int32[row], mask, vocab_size, end)
            assert np.array_equal(pair[0], source[row])
            assert np.array_equal(pair[1], target[row])
        assert np.array_equal(flax_side(self.int64, masks, vocab_size, end), source)
        assert np.array_equal(flax_side(self.int64, ~masks, vocab_size, end), target)


def one_document_rows(tokens: np.ndarray) -> SequenceBatch:
    """``(B, length)`` uint16 as corpus rows."""
    rows, length = tokens.shape
    ones = np.ones(rows, np.int64)
    zeros = Ragged.from_lengths(np.zeros(rows, np.int32), ones)
    return SequenceBatch(
        sequence_ids=np.random.default_rng(1).integers(0, 256, (rows, 16)).astype(np.uint8),
        tokens=Ragged.from_lengths(tokens.reshape(-1), length * ones),
        document_starts=zeros,
        document_ids=pa.array([["made:0:0"]] * rows, pa.list_(pa.string())),
        document_offsets=zeros,
        document_lengths=Ragged.from_lengths(np.full(rows, length, np.int32), ones),
        sentence_starts=zeros,
        cluster_ids=np.full(rows, NO_CLUSTER),
    )


def hidden_positions(starts: Ragged, lengths: Ragged, size: int) -> np.ndarray:
    """``(B, size)`` bool of spans."""
    edges = np.zeros((len(starts), size + 1), np.int64)
    for row in range(len(starts)):
        np.add.at(edges[row], starts[row], 1)
        np.add.at(edges[row], starts[row] + lengths[row], -1)
    return np.cumsum(edges, axis=1)[:, :size] > 0


def repeat(make: Callable[[], object], calls: int) -> None:
    for _ in range(calls):
        make()  # nothing is kept, so that memory is used again, as in a loop of training


def main() -> None:
    parser = arguments(__doc__.partition("\n")[0], rounds=15)
    parser.add_argument("--batch", type=int, default=64, help="sequences in a block")
    parser.add_argument("--length", type=int, default=16_384, help="tokens of each")
    parser.add_argument("--density", type=float, default=1 / 16, help="share of tokens hidden (BART-LS's: 1/16)")
    parser.add_argument("--mean", type=float, default=5.0, help="tokens of a span on average (BART-LS's: 5)")
    options = parser.parse_args()
    environment = machine("numpy", "numba")
    one_thread.take_one_core()
    sides = Sides(options.batch, options.length, options.density, options.mean)
    sides.check()
    fast = {"farspan": sides.farspan, "render": sides.render, "copy": sides.copy}
    runs = {name: lambda make=make: repeat(make, CALLS) for name, make in fast.items()}
    seconds = in_turn({**runs, "t5": sides.t5, "flax": sides.flax}, options.rounds)
    million = options.batch * options.length / 1e6
    rates = {
        name: [million * (CALLS if name in fast else 1) / second for second in values]
        for name, values in seconds.items()
    }
    spans = "mask, source, target"
    comparisons = [
        Comparison(spans, "T5 (seqio), numpy", "Mtok/s", rates["farspan"], rates["t5"], 40),
        Comparison(spans, "Hugging Face Flax T5", "Mtok/s", rates["farspan"], rates["flax"], 40),
        Comparison("stored masks rendered", "T5 (seqio), numpy", "Mtok/s", rates["render"], rates["t5"]),
        Comparison(spans, "copy of int32 (ceiling)", "Mtok/s", rates["farspan"], rates["copy"]),
    ]
    publish(
        f"Span corruption, {options.batch} sequences of {options.length:,} tokens, {options.density:.2%} in spans of "
        f"{options.mean:g}, one thread",
        HEADINGS,
        comparison_rows(comparisons),
        environment,
        options.json,
        {"batch": options.batch, "length": options.length, "million_tokens_per_second": rates},
    )


if __name__ == "__main__":
    main()
