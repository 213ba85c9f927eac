"""Random rows into padded int64 batches: a corpus against a numpy memory map of rows of one size.

Both sides read the same 20,000 sequences in the same random order, from warm caches, in one process, and their batches
are compared first. The memory map holds its rows padded already, so it need not look up where a row ends. It is read in
two ways: row by row to int64 tensors that are then stacked, as a dataset and a collator do, and row by row into the
batch itself. The goal is held against both.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import pyarrow as pa
import torch
from report import HEADINGS, Comparison, arguments, comparison_rows, in_turn, machine, publish

from corpora.schemas.corpus import Corpus
from corpora.schemas.sequences import NO_CLUSTER, SequenceBatch, corpus_schema
from corpora.storage.manifest import Manifest, Receipt, fold
from corpora.storage.manifest_file import write_manifest
from corpora.storage.ragged import Ragged
from corpora.storage.shards import shard_name, write_shard

VOCAB = 32_000
PAD = 0


def main() -> None:
    parser = arguments(__doc__.partition("\n")[0], rounds=15)
    parser.add_argument("--rows", type=int, default=20_000, help="sequences")
    parser.add_argument("--length", type=int, default=2_049, help="tokens of the longest")
    parser.add_argument("--batch", type=int, default=32, help="sequences in a batch")
    parser.add_argument("--shards", type=int, default=4, help="of the corpus")
    options = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="farspan-reading-") as folder:
        sides = Sides(folder, options.rows, options.length, options.shards)
        rng = np.random.default_rng(1)
        batches = [rng.permutation(options.rows)[i : i + options.batch] for i in range(0, options.rows, options.batch)]
        ways = {"gather": sides.gathered, "take": sides.taken, "memmap": sides.from_memmap, "stack": sides.stacked}
        runs = {name: partial(make_all, make, batches) for name, make in ways.items()}
        for rows in batches[:50]:
            expected = sides.from_memmap(rows)
            assert all(torch.equal(expected, make(rows)) for make in (sides.gathered, sides.taken, sides.stacked))
        seconds = in_turn(runs, options.rounds)
    rates = {name: [options.rows / second for second in values] for name, values in seconds.items()}
    names = {"gather": "Corpus.gather_tokens", "take": "Corpus.take (all columns), padded"}
    peers = {"stack": "memmap, row by row to int64 tensors, stacked", "memmap": "memmap, row by row into the batch"}
    comparisons = [
        Comparison(names[ours], peers[peer], "samples/s", rates[ours], rates[peer], goal)
        for ours, peer, goal in (("gather", "stack", 2.0), ("gather", "memmap", 2.0), ("take", "stack", None))
    ]
    sizes = f"{options.rows:,} rows of up to {options.length:,} uint16 tokens, batches of {options.batch}"
    publish(
        f"Reading: {sizes}, int64",
        HEADINGS,
        comparison_rows(comparisons),
        machine("numpy", "pyarrow", "numba", "torch"),
        options.json,
        {"sizes": vars(options), "samples_per_second": rates, "ratios": [row.ratio for row in comparisons]},
    )


def make_all(make: Callable[[np.ndarray], torch.Tensor], batches: list[np.ndarray]) -> None:
    for rows in batches:
        make(rows)  # and drop it, as training does: keeping all would time the page faults of new memory


class Sides:
    """The same rows as a corpus and as a memory map; each method makes an ``(n, length)`` int64 tensor of n rows."""

    def __init__(self, folder: str, rows: int, length: int, shards: int) -> None:
        rng = np.random.default_rng(0)
        padded = np.full((rows, length), PAD, np.uint16)
        lengths = rng.integers(length * 9 // 10, length + 1, rows)
        padded[np.arange(length) < lengths[:, None]] = rng.integers(4, VOCAB, lengths.sum())
        path = os.path.join(folder, "rows.bin")
        padded.tofile(path)
        write_corpus(os.path.join(folder, "corpus"), padded, lengths, shards)
        self.length = length
        self.corpus = Corpus(os.path.join(folder, "corpus"))
        self.memmap = np.memmap(path, np.uint16, "r", shape=(rows, length))

    def gathered(self, rows: np.ndarray) -> torch.Tensor:
        batch = torch.empty((len(rows), self.length), dtype=torch.int64)
        self.corpus.gather_tokens(rows, batch.numpy(), PAD)
        return batch

    def taken(self, rows: np.ndarray) -> torch.Tensor:
        tokens = self.corpus.take(rows).tokens
        batch = torch.full((len(rows), self.length), PAD, dtype=torch.int64)
        out = batch.numpy()
        for row, size in enumerate(tokens.lengths.tolist()):
            out[row, :size] = tokens[row]
        return batch

    def from_memmap(self, rows: np.ndarray) -> torch.Tensor:
        batch = torch.empty((len(rows), self.length), dtype=torch.int64)
        out = batch.numpy()
        for place, row in enumerate(rows.tolist()):
            out[place] = self.memmap[row]
        return batch

    def stacked(self, rows: np.ndarray) -> torch.Tensor:
        return torch.stack([torch.from_numpy(self.memmap[row].astype(np.int64)) for row in rows.tolist()])


def write_corpus(folder: str, padded: np.ndarray, lengths: np.ndarray, shards: int) -> None:
    """Write the ``(n, width)`` uint16 rows, each cut at its length, as a corpus of one-document sequences."""
    receipts = []
    schema = corpus_schema(VOCAB)
    for shard, rows in enumerate(np.array_split(np.arange(len(padded)), shards)):
        path = os.path.join(folder, "shards", shard_name(shard, shards))
        with write_shard(path, schema, 64) as (writer, info):
            for block in blocks(padded[rows], lengths[rows], int(rows[0])):
                writer.write(block.to_arrow(schema))
        totals = {"sequences": len(rows), "tokens": int(lengths[rows].sum()), "documents": len(rows)}
        totals |= {"parts": len(rows), "padding": int((padded.shape[1] - lengths[rows]).sum())}
        totals |= {"max_tokens": int(lengths[rows].max(initial=0)), "max_documents": 1}
        receipts.append(Receipt(str(shard), tuple(info), totals))
    tokenizer = {"fingerprint": "none", "vocab_size": VOCAB, "owned_tokens": {}}
    config = {
        "builder": "documents",
        "sequence_length": padded.shape[1],
        "room_per_sequence": 0,
        "room_per_document": 0,
    }
    write_manifest(folder, Manifest("farspan.corpus", config, 0, 64, tokenizer, **fold(receipts)))


def blocks(padded: np.ndarray, lengths: np.ndarray, first: int) -> Iterator[SequenceBatch]:
    for start in range(0, len(padded), 1024):
        rows, sizes = padded[start : start + 1024], lengths[start : start + 1024]
        ids = np.zeros((len(rows), 16), np.uint8)
        ids[:, :8] = (first + start + np.arange(len(rows)))[:, None].view(np.uint8)
        zeros = Ragged.from_lengths(np.zeros(len(rows), np.int32), np.ones(len(rows), np.int64))
        yield SequenceBatch(
            sequence_ids=ids,
            tokens=Ragged.from_lengths(rows[np.arange(rows.shape[1]) < sizes[:, None]], sizes),
            document_starts=zeros,
            document_ids=pa.array([["bench:0:0"]] * len(rows), pa.list_(pa.string())),
            document_offsets=zeros,
            document_lengths=Ragged.from_lengths(sizes.astype(np.int32), np.ones(len(rows), np.int64)),
            sentence_starts=zeros,
            cluster_ids=np.full(len(rows), NO_CLUSTER),
        )


if __name__ == "__main__":
    main()
