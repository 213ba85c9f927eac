"""Jobs of `farspan documents` for these tests, and what they reject."""

import os

import pyarrow as pa

from corpora.readers import ReadOptions
from corpora.storage import files
from corpora.storage.shards import map_shard
from pipelines.documents.inputs import Input
from pipelines.documents.job import plan
from pipelines.documents.options import Documents
from pipelines.engine.options import Engine
from pipelines.engine.run import run_job


def job(raw, output, tokenizer, read=ReadOptions(), **options):  # noqa: B008 (frozen)
    inputs = tuple(Input.parse(text, read) for text in ([raw] if isinstance(raw, str) else raw))
    return plan(Documents(inputs=inputs, output=str(output), tokenizer=tokenizer, **options))


def build(raw, output, tokenizer, engine=Engine(workers=1), **options):  # noqa: B008 (frozen)
    return run_job(job(raw, output, tokenizer, **options), engine)


def rejects(folder):
    found = []
    for path in files.walk(os.path.join(str(folder), "rejects")):
        reader = map_shard(path)[1]
        found += pa.Table.from_batches([reader.get_batch(i) for i in range(reader.num_record_batches)]).to_pylist()
    return found


def job_of_reference(raw, output, tokenizer):
    return job(raw, output, tokenizer, held_out=0.1, task_bytes=20_000)
