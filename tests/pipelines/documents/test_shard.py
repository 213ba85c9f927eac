"""Writers of documents and rejects: counts, files that appear whole or not at all."""

from __future__ import annotations

import os

import pyarrow as pa
import pytest

from corpora.readers import Reject
from corpora.schemas.documents import documents_schema
from corpora.storage.shards import map_shard
from pipelines.documents.shard import DocumentsShard, RejectsShard


def batch(names: list[str], held_out: list[bool]) -> pa.RecordBatch:
    schema = documents_schema(300)
    columns = {
        "document_id": names,
        "source": [name.partition(":")[0] for name in names],
        "cluster": [None] * len(names),
        "held_out": held_out,
        "tokens": [list(range(1, number + 2)) for number in range(len(names))],
        "sentence_starts": [[0]] * len(names),
    }
    return pa.record_batch([pa.array(columns[field.name], field.type) for field in schema], schema=schema)


def test_documents_are_counted_by_source(tmp_path):
    path = str(tmp_path / "shard.arrow")
    with DocumentsShard(path, 300, None, keep_ids=True) as shard:
        shard.write(batch(["a:1", "b:1", "a:2"], [False, True, True]))
        shard.write(batch(["b:2"], [False]))
    assert shard.counts["a"] == {"written": 2, "tokens": 4, "held_out_tokens": 3}
    assert shard.counts["b"] == {"written": 2, "tokens": 3, "held_out_tokens": 2}
    assert (shard.totals["documents"], shard.totals["tokens"], shard.totals["max_tokens"]) == (4, 7, 3)
    assert shard.ids == ["a:1", "b:1", "a:2", "b:2"]
    assert [(info.rows, info.tokens, info.bytes) for info in shard.info] == [(4, 7, os.path.getsize(path))]


def test_a_shard_that_fails_leaves_no_file(tmp_path):
    path = tmp_path / "shard.arrow"
    with pytest.raises(ZeroDivisionError), DocumentsShard(str(path), 300, None) as shard:
        shard.write(batch(["a:1"], [False]))
        raise ZeroDivisionError
    assert os.listdir(tmp_path) == []


def rejected(path: str) -> list[dict]:
    reader = map_shard(path)[1]
    return pa.Table.from_batches([reader.get_batch(i) for i in range(reader.num_record_batches)]).to_pylist()


def test_rejects_are_written_in_blocks(tmp_path, monkeypatch):
    monkeypatch.setattr(RejectsShard, "ROWS", 2)
    path = str(tmp_path / "rejects.arrow")
    letters = [Reject("", str(number), "too_long" if number else "broken_json", b"x", "why") for number in range(5)]
    with RejectsShard(path) as rejects:
        rejects.write("a", "file", letters)
    found = rejected(path)
    assert [row["record"] for row in found] == ["0", "1", "2", "3", "4"]
    assert found[0] == {
        "source": "a", "path": "file", "record": "0", "reason": "broken_json", "detail": "why", "raw": b"x"
    }  # fmt: skip
    assert rejects.reasons == {"too_long": 4, "broken_json": 1}
    assert map_shard(path)[1].num_record_batches == 3


def test_no_reject_no_file(tmp_path):
    with RejectsShard(str(tmp_path / "rejects.arrow")) as rejects:
        rejects.write("a", "file", [])
    with pytest.raises(ZeroDivisionError), RejectsShard(str(tmp_path / "rejects.arrow")) as rejects:
        rejects.write("a", "file", [Reject("", "0", "too_long", b"", "")])
        raise ZeroDivisionError
    assert os.listdir(tmp_path) == []
