"""``farspan documents``: tokenise raw text, in record ranges.

A task is a list of ranges, about ``task_bytes`` together and from at most ``task_files`` files; it becomes one shard.
Ids and rows do not depend on the boundaries of ranges. Bad records go to ``rejects/``, all others are kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from corpora.options import record_options
from corpora.readers import ReadOptions
from corpora.readers.selection import gives_ids
from corpora.schemas.documents import HeldOut
from corpora.storage.manifest import Manifest
from corpora.text.sentences import load_splitter
from corpora.tokenizers.load import load_tokenizer
from pipelines.documents import unique_ids
from pipelines.documents.inputs import Input, revisions_of
from pipelines.documents.options import Documents, RawText
from pipelines.documents.ranges import RawFiles
from pipelines.documents.shard import DocumentsShard
from pipelines.documents.tokenize import TokenizeRanges
from pipelines.engine.artefacts import absolute, save_tokenizer
from pipelines.engine.job import Job, Stage, shard_paths, work_paths


def plan_raw(raw: RawText, options: Documents) -> Job:
    """Plan the job for the files that ``raw`` names."""
    return plan(replace(options, inputs=Input.parse_all(raw.input, raw.read)))


def plan(options: Documents) -> Job:
    """Check the options, look up the size of every input and declare the tasks."""
    output = absolute(options.output)
    tokenizer = load_tokenizer(options.tokenizer)
    splitter = load_splitter(options.sentences)
    HeldOut(options.held_out, options.seed)  # refuses a number that is no share
    raw = RawFiles.plan(options.inputs, output, options.task_bytes, options.task_files)
    config = {
        "builder": "documents",
        "sources": sorted(raw.reads),
        "read": {source: _configuration(read) for source, read in raw.reads.items()},
        **record_options(options, sentences={"name": splitter.name, "version": splitter.version}),
    }
    config |= {name: value for name, value in _terms(options).items() if value}
    if repeating := _repeating(raw.reads):
        config["repeats"] = sorted(repeating)
    if revisions := revisions_of(raw.inputs):
        config["revisions"] = revisions
    head = Manifest(
        format="farspan.documents",
        config=config,
        seed=options.seed,
        rows_per_batch=DocumentsShard.ROWS_PER_BATCH,
        tokenizer={
            "fingerprint": tokenizer.fingerprint,
            "vocab_size": tokenizer.vocab_size,
            "owned_tokens": tokenizer.owned_tokens,
        },
        inputs=raw.entries,
    )
    stages = _stages(options, raw, output, tokenizer.vocab_size)
    save = partial(save_tokenizer, tokenizer)
    return Job(output, head, stages, save, raw.work_bytes, options.error_budget, **raw.of_job)


def _stages(options: Documents, raw: RawFiles, output: str, vocab_size: int) -> list[Stage]:
    shards = shard_paths(output, len(raw.groups))
    # ids from the data may repeat: then shards wait in _work/ until all ids are known
    waiting = work_paths(output, "unchecked", len(raw.groups), ".arrow")
    own_ids = any(read.id_field or gives_ids(read) for read in raw.reads.values())
    titles = any(read.title_field for read in raw.reads.values())
    work = TokenizeRanges(output, replace(options, inputs=()), raw.reads, own_ids, titles)
    stages = [raw.read_by("documents", work, waiting if own_ids else shards)]
    if own_ids:
        repeating = _repeating(raw.reads)
        stages += unique_ids.stages(output, waiting, shards, vocab_size, options.compression, repeating, titles)
    return stages


def _terms(options: Documents) -> dict[str, Any]:
    """Licence and languages, which derived artefacts inherit (``pipelines.engine.artefacts``)."""
    return {"license": options.license, "language": list(options.language)}


def _repeating(reads: Mapping[str, ReadOptions]) -> frozenset[str]:
    """Sources in which a document may occur several times; only the first is kept."""
    return frozenset(source for source, read in reads.items() if gives_ids(read))


def _configuration(read: ReadOptions) -> dict[str, Any]:
    """The options of reading that affect the bytes of documents, for the manifest; those added later only if given."""
    unset = [name for name in ("subset", "title_field") if not getattr(read, name)]
    return record_options(read, without=["pairs", *unset])
