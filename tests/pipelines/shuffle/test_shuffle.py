"""Pieces spilled into buckets, intermediate files, placements, and the shards of a corpus."""

import os
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpora.errors import FarspanError
from corpora.packing.concatenate import concatenate
from corpora.packing.options import Packing
from corpora.storage.ragged import Ragged
from corpora.storage.sharded_rows import ShardedRows
from pipelines.engine.artefacts import Parent
from pipelines.shuffle.corpus_shard import SHARD_TOKENS, Packed, count_rows, shard_count
from pipelines.shuffle.intermediate import checksum, partition, read_array, read_batch, write_array, write_batches
from pipelines.shuffle.placements import ReadPlacements, place_pieces, use_numbers, write_placements
from pipelines.shuffle.spill import Bucket, Pieces, bucket_of, read_bucket, spill_stages
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
        bucket = (rows + second) % BUCKETS
        columns = {
            "key_high": (((bucket << 32) // BUCKETS + 1).astype(np.uint64) << np.uint64(32)) + np.uint64(index),
            "key_low": rows.astype(np.uint64),
            "position": second.astype(np.int32),
            "offset": np.where(second, half, 0).astype(np.int32),
            "size": np.where(second, lengths[rows] - half, half).astype(np.int32),
            "use": second.astype(np.int32),
            "cluster": rows,
        }
        return Pieces(rows, np.ones(len(lengths), bool), columns)


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


@given(st.lists(st.integers(0, 6), max_size=30))
def test_partition_lists_the_rows_of_each_label(labels):
    found = [rows.tolist() for rows in partition(np.array(labels, np.int64), 7)]
    assert found == [[row for row, label in enumerate(labels) if label == number] for number in range(7)]


def batch(first: int, count: int) -> pa.RecordBatch:
    numbers = list(range(first, first + count))
    columns = [numbers, [str(n) for n in numbers], [list(range(n % 4)) for n in numbers]]
    kinds = [pa.int64(), pa.string(), pa.list_(pa.int32())]
    return pa.record_batch([pa.array(c, k) for c, k in zip(columns, kinds, strict=True)], names=["n", "s", "l"])


@pytest.fixture
def path(tmp_path):
    name = str(tmp_path / "work" / "a.arrow")
    write_batches(name, batch(0, 1).schema, (batch(first, 5) for first in (0, 5, 10)))
    return name


def test_batches_are_read_one_by_one(path):
    assert [read_batch(path, index) for index in range(3)] == [batch(first, 5) for first in (0, 5, 10)]


def test_a_flipped_bit_is_noticed_in_its_batch_alone(path):
    data = bytearray(open(path, "rb").read())
    data[data.find(np.array([5, 6, 7]).tobytes()) + 8] ^= 1  # column n of batch 1
    open(path, "wb").write(data)
    assert read_batch(path, 0) == batch(0, 5)
    with pytest.raises(FarspanError, match=r"record batch 1 has checksum .* delete the job's output folder"):
        read_batch(path, 1)


def test_a_missing_batch_or_file_is_named(path):
    with pytest.raises(FarspanError, match="record batch 3"):
        read_batch(path, 3)


def test_checksums_do_not_depend_on_the_buffers():
    assert checksum(batch(0, 10).slice(3, 4)) == checksum(batch(3, 4))
    assert checksum(batch(0, 4)) != checksum(batch(1, 4))


@pytest.mark.parametrize("mapped", [False, True])
def test_arrays_are_read_back(tmp_path, mapped):
    path = str(tmp_path / "a.npy")
    values = np.arange(12, dtype=np.float32).reshape(3, 4)
    write_array(path, values)
    assert np.array_equal(read_array(path, mapped), values)
    assert np.array_equal(np.load(path), values)


def test_a_damaged_or_missing_array_is_refused(tmp_path):
    path = str(tmp_path / "a.npy")
    write_array(path, np.arange(5))
    data = bytearray(open(path, "rb").read())
    data[-40] ^= 1
    open(path, "wb").write(data)
    with pytest.raises(FarspanError, match="its checksum is not that of what was written"):
        read_array(path)
    os.remove(path)
    with pytest.raises(FarspanError, match="No such file"):
        read_array(path)


STARTS = np.array([0, 4, 4, 9])  # rows of three documents shards, one of them empty


def placed(rows: list[int]) -> pa.RecordBatch:
    number = np.arange(len(rows))
    return place_pieces(
        np.array(rows, np.int64),
        [f"made:{row}" for row in rows],
        np.stack([number + 7, number], axis=1).astype(np.uint64) << np.uint64(60),
        position=number,
        offset=number * 2,
        size=number + 1,
        use=number % 2,
        cluster=number + 100,
    )


def documents(shard: int) -> pa.RecordBatch:
    rows = range(STARTS[shard], STARTS[shard + 1])
    return pa.record_batch(
        [pa.array([f"made:{row}" for row in rows], pa.string()), pa.array([row % 2 == 0 for row in rows], pa.bool_())],
        names=["document_id", "held_out"],
    )


@pytest.fixture
def read(tmp_path):
    files = (str(tmp_path / "a.arrow"), str(tmp_path / "b.arrow"))
    write_placements(files[0], [placed([8, 0, 4, 0])], STARTS)
    write_placements(files[1], [placed([3])], STARTS)
    return ReadPlacements(files, tuple(STARTS.tolist()), False)


def test_each_shard_gets_its_own_pieces_from_every_file(read):
    first = read(0, documents(0))
    assert first.rows.tolist() == [0, 0, 3]
    assert first.columns["position"].tolist() == [1, 3, 0]
    assert first.columns["cluster"].tolist() == [101, 103, 100]
    assert first.read.tolist() == [False, True, False, True]
    assert len(read(1, documents(1)).rows) == 0
    assert read(2, documents(2)).rows.tolist() == [0, 4]


def test_other_documents_than_were_placed_are_refused(read):
    with pytest.raises(FarspanError, match="shard 2 of the documents holds other documents"):
        read(2, documents(2).set_column(0, "document_id", pa.array([f"other:{row}" for row in range(5)])))


def test_placements_are_joined_in_order(tmp_path):
    files = (str(tmp_path / "a.arrow"), str(tmp_path / "none.arrow"))
    write_placements(files[0], [placed([1, 2]), placed([]), placed([2, 5])], STARTS)
    write_placements(files[1], [], STARTS)
    read = ReadPlacements(files, tuple(STARTS.tolist()), False)
    joined = read(0, documents(0))
    assert joined.rows.tolist() == [1, 2, 2]
    assert joined.columns["position"].tolist() == [0, 1, 0]
    assert read(2, documents(2)).rows.tolist() == [1]


@given(st.lists(st.tuples(st.integers(0, 4), st.booleans()), max_size=20))
def test_uses_count_the_earlier_beginnings_of_a_document(parts):
    seen: set[int] = set()
    whole = []
    for document, begins in parts:  # a document's first part begins a use
        whole.append((document, begins or document not in seen))
        seen.add(document)
    numbers = np.array([document for document, _ in whole], np.int64)
    offsets = np.array([0 if begins else 5 for _, begins in whole], np.int64)
    found = use_numbers(Ragged.from_lengths(numbers, np.array([len(whole)])), offsets)
    counts = dict.fromkeys(range(5), -1)
    for (document, begins), use in zip(whole, found.tolist(), strict=True):
        counts[document] += begins
        assert use == counts[document]


def test_shards_follow_from_the_tokens_unless_given():
    assert shard_count(7, 10**12) == 7
    assert [shard_count(0, n) for n in (0, 1, SHARD_TOKENS, SHARD_TOKENS + 1)] == [1, 1, 1, 2]


def bucket(lengths: list[int]) -> Bucket:
    """Documents of sources ``a`` and ``b`` in turn."""
    count = len(lengths)
    zeros = np.zeros(count, np.int32)
    return Bucket(
        keys=np.arange(2 * count, dtype=np.uint64).reshape(count, 2),
        positions=zeros,
        offsets=zeros,
        lengths=np.array(lengths, np.int32),
        uses=zeros,
        clusters=zeros.astype(np.int64),
        document_ids=pa.array([f"{'ab'[row % 2]}:{row}" for row in range(count)]),
        sources=np.array(["ab"[row % 2] for row in range(count)], object),
        tokens=Ragged.from_lengths(np.arange(sum(lengths), dtype=np.uint16), np.array(lengths)),
        sentence_starts=Ragged.from_rows([[0]] * count, np.int32),
    )


def test_rows_are_counted_by_source():
    packing = Packing(sequence_length=12, room_per_sequence=2, room_per_document=1)
    held = bucket([5, 20, 3, 4])
    chosen = np.array([0, 1, 2])  # the last one is left out
    made = concatenate(
        held.document_ids.take(pa.array(chosen)), held.tokens.take(chosen), held.sentence_starts.take(chosen), packing
    )
    totals, counts = count_rows(Packed(made.sequences, chosen[made.documents]), held, packing)
    assert counts == {
        "a": {"written": 2, "filtered": 0, "uses": 2, "tokens": 8},
        "b": {"written": 1, "filtered": 1, "uses": 1, "tokens": 20},
    }
    assert (totals["documents"], totals["tokens"], totals["sequences"]) == (3, 28, 4)
    assert totals["padding"] == 4 * 10 - 28 - totals["parts"]
