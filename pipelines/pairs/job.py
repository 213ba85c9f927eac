"""``farspan pairs``: queries with their answers, about documents that are tokenised already.

Stage *index* hashes the ids of the documents; *read* turns raw records into rows; *group* finds the rows of the same
pair and decides splits; *pairs* writes the shards. A pair has the place of its first record, so rows are in the order
of the inputs, however many tasks and workers there are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from corpora.errors import FarspanError, nearest
from corpora.options import list_fields, record_options
from corpora.readers import ReadOptions
from corpora.readers.options import PAIRS_OF
from pipelines.documents.inputs import Input, read_options
from pipelines.documents.ranges import RawFiles
from pipelines.engine.artefacts import Parent, absolute, declare_derived_job
from pipelines.engine.job import Job, Stage, make_sharded_stage, shard_paths, work_paths
from pipelines.pairs.merge import group_pairs, write_pairs
from pipelines.pairs.options import Pairs, RawPairs
from pipelines.pairs.tokenize import ROWS_PER_BATCH, ReadPairs, index_documents


def plan_raw(raw: RawPairs, options: Pairs) -> Job:
    """Plan the job for the files that ``raw`` names."""
    read = raw.read
    return plan(replace(options, inputs=tuple(Input.parse(text, read) for text in raw.input)))


def plan(options: Pairs) -> Job:
    """Check the options against the documents, look up the size of every input and declare the tasks."""
    output, documents = absolute(options.output), Parent.read(options.documents, "farspan.documents")
    _check_sources(documents, read_options(options.inputs))
    raw = RawFiles.plan(options.inputs, output, options.task_bytes, options.task_files)
    unused: dict[str, Any] = {} if options.split == "draw" else {"validation": None, "test": None}
    config = {
        "builder": "pairs",
        "sources": sorted(raw.reads),
        "read": {source: _configuration(read) for source, read in raw.reads.items()},
        **record_options(options, **unused),
    }
    job = declare_derived_job(
        output,
        documents,
        _stages(options, documents, output, raw),
        format="farspan.pairs",
        config=config,
        seed=options.seed,
        rows_per_batch=ROWS_PER_BATCH,
        work_bytes=raw.work_bytes,
        inputs=raw.entries,
    )
    return replace(job, error_budget=options.error_budget, **raw.of_job)


def _check_sources(documents: Parent, reads: Mapping[str, ReadOptions]) -> None:
    """Refuse a source without documents."""
    known = sorted(documents.manifest.counts)
    for source in reads:
        if source not in known:
            raise FarspanError(
                f"--input {source}=...: {documents.folder} has no documents of source {source!r}"
                f"{nearest(source, known)}, only of {', '.join(known)}; give the input the NAME that it had for "
                "`farspan documents`"
            )


def _configuration(read: ReadOptions) -> dict[str, Any]:
    """The options of reading that affect pairs, for the manifest."""
    of_documents = [name for name in list_fields(ReadOptions) if name not in list_fields(RawPairs)]
    format = str(read.format).removeprefix(PAIRS_OF)
    return {**record_options(read, without=of_documents, format=format), **record_options(read.pairs)}


def _stages(options: Pairs, documents: Parent, output: str, raw: RawFiles) -> list[Stage]:
    index = work_paths(output, "index", len(documents.shards), ".npy")
    unmerged = work_paths(output, "unmerged", len(raw.groups), ".arrow")
    (grouping,) = work_paths(output, "groups", 1, ".npy")
    draw = (options.seed, options.validation, options.test) if options.split == "draw" else None
    size, shards = documents.vocab_size, documents.shards
    read = ReadPairs(output, documents.folder, raw.reads, options.split, index)
    group = partial(group_pairs, unmerged, size, draw)
    write = partial(write_pairs, unmerged, grouping, output, size, options.compression)
    rows, paths = [shard.rows for shard in shards], shard_paths(output, len(raw.groups))
    return [
        make_sharded_stage("index", index_documents, "documents", rows, documents=shards, hashes=index),
        raw.read_by("read", read, unmerged),
        make_sharded_stage("group", group, "tables", [1], groups=[grouping]),
        make_sharded_stage("pairs", write, "shards", [1] * len(paths), shard=paths),
    ]
