"""One shard of a corpus with its receipt, and the stage and job around it."""

from __future__ import annotations

from dataclasses import asdict

import numpy as np
import pyarrow as pa

from corpora.packing.concatenate import concatenate
from corpora.packing.options import Packing
from corpora.schemas.corpus import DocumentUse
from corpora.schemas.sequences import SequenceBatch
from corpora.storage.manifest import Receipt
from corpora.storage.ragged import Ragged
from corpora.storage.shards import map_shard
from pipelines.engine.artefacts import Parent
from pipelines.engine.job import Task
from pipelines.shuffle.corpus_shard import SHARD_TOKENS, corpus_job, pack_stage, shard_count, write_corpus_shard
from pipelines.shuffle.spill import Bucket
from tests.artefacts import make_documents


def test_shards_follow_from_the_tokens_unless_given():
    assert shard_count(7, 10**12) == 7
    assert [shard_count(0, n) for n in (0, 1, SHARD_TOKENS, SHARD_TOKENS + 1)] == [1, 1, 1, 2]


def test_each_bucket_becomes_the_shard_of_its_number():
    stage = pack_stage("out", 2, 100, lambda task, report: Receipt(task.name))
    assert [(task.name, task.payload["bucket"], task.units) for task in stage.tasks] == [
        ("pack-00000", 0, 50),
        ("pack-00001", 1, 50),
    ]
    assert stage.tasks[1].payload["shard"] == "out/shards/part-00001-of-00002.arrow"


def test_the_statement_of_use_goes_into_the_manifest(tmp_path):
    documents = Parent.read(make_documents(str(tmp_path / "documents")), "farspan.documents")
    use = DocumentUse(max_uses=3)
    job = corpus_job(str(tmp_path / "corpus"), documents, [], config={"builder": "x"}, use=use, seed=1, work_bytes=0)
    assert job.head.config == {"builder": "x", "document_use": asdict(use)}
    assert job.head.format == "farspan.corpus"


def bucket(lengths: list[int]) -> Bucket:
    """Documents of sources ``a`` and ``b`` in turn."""
    count = len(lengths)
    zeros = np.zeros(count, np.int32)
    tokens = Ragged.from_lengths(np.arange(sum(lengths), dtype=np.uint16), np.array(lengths))
    return Bucket(
        keys=np.arange(2 * count, dtype=np.uint64).reshape(count, 2),
        positions=zeros,
        offsets=zeros,
        lengths=np.array(lengths, np.int32),
        uses=zeros,
        clusters=zeros.astype(np.int64),
        document_ids=pa.array([f"{'ab'[row % 2]}:{row}" for row in range(count)]),
        sources=np.array(["ab"[row % 2] for row in range(count)], object),
        tokens=tokens,
        sentence_starts=Ragged.from_rows([[0]] * count, np.int32),
    )


def test_a_receipt_counts_documents_by_source(tmp_path):
    packing = Packing(sequence_length=12, room_per_sequence=2, room_per_document=1)
    held = bucket([5, 20, 3, 4])
    chosen = np.array([0, 1, 2])  # the last one is left out
    made = concatenate(
        held.document_ids.take(pa.array(chosen)), held.tokens.take(chosen), held.sentence_starts.take(chosen), packing
    )
    path = str(tmp_path / "shard.arrow")
    task = Task("pack-00000", {"bucket": 0, "shard": path}, 1)
    receipt = write_corpus_shard(task, made.sequences, held, chosen[made.documents], packing, 300, None)
    assert receipt.counts == {
        "a": {"written": 2, "filtered": 0, "uses": 2, "tokens": 8},
        "b": {"written": 1, "filtered": 1, "uses": 1, "tokens": 20},
    }
    assert (receipt.totals["documents"], receipt.totals["tokens"]) == (3, 28)
    rows = SequenceBatch.from_arrow(map_shard(path)[1].get_batch(0))
    assert len(rows) == receipt.totals["sequences"] == 4
    assert receipt.totals["padding"] == 4 * 10 - 28 - receipt.totals["parts"]
