from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pytest

from corpora.storage.ragged import Ragged
from corpora.storage.sharded_rows import ShardedRows
from pipelines.engine.artefacts import Parent
from pipelines.shuffle.spill import Pieces, bucket_of, read_bucket, spill_stages
from tests.artefacts import make_documents

BUCKETS = 3


@dataclass(frozen=True)
class Halves:
    """The two halves of every document, the second one to the next bucket; every seventh document is left out."""

    def __call__(self, index: int, batch: pa.RecordBatch) -> Pieces:
        lengths = Ragged.from_arrow(batch.column("tokens")).lengths
        kept = np.arange(len(lengths)) % 7 > 0
        rows = np.repeat(np.flatnonzero(kept), 2)
        second = np.arange(len(rows)) % 2 == 1
        half = lengths[rows] // 2
        keys = np.column_stack([np.full(len(rows), index), rows]).astype(np.uint64)
        return Pieces(
            rows,
            buckets=(rows + second) % BUCKETS,
            keys=keys,
            positions=second.astype(np.int32),
            read=np.ones(len(lengths), bool),
            kept=kept,
            offsets=np.where(second, half, 0).astype(np.int32),
            sizes=np.where(second, lengths[rows] - half, half).astype(np.int32),
            uses=second.astype(np.int32),
            clusters=rows,
        )


@pytest.fixture(scope="module", params=[64, 2], ids=["direct", "merged"])
def dealt(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("spill")
    documents = make_documents(str(folder / "documents"), shards=3)
    parent = Parent.read(documents, "farspan.documents")
    stages, spills = spill_stages(str(folder / "out"), parent, Halves(), BUCKETS, request.param)
    receipts = [stage.work(task, lambda done: None) for stage in stages for task in stage.tasks]
    assert len(spills) == (3 if request.param == 64 else 2)
    return documents, [read_bucket(spills, bucket) for bucket in range(BUCKETS)], receipts


def test_every_piece_arrives_in_its_bucket_in_order(dealt):
    documents, buckets, _ = dealt
    parent = ShardedRows(documents, "farspan.documents")
    rows = [row for shard in range(3) for batch in range(3) for row in parent.batch(shard, batch).to_pylist()]
    expected = {row["document_id"]: row for row in rows}
    found: dict[str, list] = {}
    for number, bucket in enumerate(buckets):
        order = list(
            zip(bucket.keys[:, 0].tolist(), bucket.keys[:, 1].tolist(), bucket.positions.tolist(), strict=True)
        )
        assert order == sorted(order)
        for piece in range(len(bucket)):
            name = bucket.document_ids[piece].as_py()
            offset, size = int(bucket.offsets[piece]), len(bucket.tokens[piece])
            assert bucket.lengths[piece] == len(expected[name]["tokens"])
            assert bucket.clusters[piece] == bucket.keys[piece, 1]
            assert (bucket.clusters[piece] + bucket.uses[piece]) % BUCKETS == number
            assert bucket.tokens[piece].tolist() == expected[name]["tokens"][offset : offset + size]
            starts = [s - offset for s in expected[name]["sentence_starts"] if offset <= s < offset + size]
            assert bucket.sentence_starts[piece].tolist() == starts
            found.setdefault(name, []).append((offset, size))
    assert len(found) == sum(int(row["document_id"].split(":")[2]) % 7 > 0 for row in rows)
    for name, pieces in found.items():
        first, second = sorted(pieces, key=lambda piece: piece[0] + piece[1])
        assert first[1] == second[0]
        assert sum(second) == len(expected[name]["tokens"])


def test_what_is_left_out_is_counted(dealt):
    counts = [receipt.counts["made"] for receipt in dealt[2] if receipt.counts]
    assert sum(count["read"] for count in counts) == 120
    assert sum(count["filtered"] for count in counts) == 3 * 6


def test_buckets_share_keys_evenly_and_in_order():
    keys = np.sort(np.random.default_rng(0).integers(0, 2**64, 70_000, np.uint64, endpoint=False))
    buckets = bucket_of(keys, 7)
    assert (np.diff(buckets) >= 0).all()
    counts = np.bincount(buckets, minlength=7)
    assert counts.min() > 9_500
    assert len(counts) == 7
