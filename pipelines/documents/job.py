"""``farspan documents``: tokenise raw text, in record ranges.

A task is a list of ranges, about ``task_bytes`` together and from at most ``task_files`` files; it becomes one shard.
Ids and rows do not depend on the boundaries of ranges. Bad records go to ``rejects/``, all others are kept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
from pipelines.documents.inputs import (
    Input,
    check_first,
    leave_out_output,
    read_options,
    refuse_equal_ids,
    repeated_links,
    revisions_of,
)
from pipelines.documents.options import Documents, RawText
from pipelines.documents.ranges import CutFile, cut_files, group_ranges, list_inputs, list_versions, work_bytes
from pipelines.documents.shard import DocumentsShard
from pipelines.documents.tokenize import TokenizeRanges
from pipelines.engine.artefacts import absolute, save_tokenizer
from pipelines.engine.job import Job, Stage, shard_paths, sharded_stage, work_paths


def plan_raw(raw: RawText, options: Documents) -> Job:
    """Plan the job for the files that ``raw`` names."""
    return plan(replace(options, inputs=Input.parse_all(raw.input, raw.read)))


def plan(options: Documents) -> Job:
    """Check the options, look up the size of every input and declare the tasks."""
    output = absolute(options.output)
    tokenizer = load_tokenizer(options.tokenizer)
    splitter = load_splitter(options.sentences)
    HeldOut(options.held_out, options.seed)  # refuses a number that is no share
    options, reads = _check_inputs(options, output)
    cut = cut_files(options.inputs, reads, options.task_bytes)
    config = {
        "builder": "documents",
        "sources": sorted(reads),
        "read": {source: _configuration(read) for source, read in reads.items()},
        **record_options(options, sentences={"name": splitter.name, "version": splitter.version}),
    }
    config |= {name: value for name, value in _terms(options).items() if value}
    if repeating := _repeating(reads):
        config["repeats"] = sorted(repeating)
    if revisions := revisions_of(options.inputs):
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
        inputs=list_inputs(cut),
    )
    return Job(
        output,
        head,
        _stages(options, cut, output, reads, tokenizer.vocab_size),
        partial(save_tokenizer, tokenizer),
        work_bytes(cut),
        options.error_budget,
        repeated_links=repeated_links(options.inputs),
        versions=list_versions(cut),
    )


def _check_inputs(options: Documents, output: str) -> tuple[Documents, dict[str, ReadOptions]]:
    """Check the inputs; return the options without files of the output, and the read options of each source."""
    kept = leave_out_output(options.inputs, output)
    refuse_equal_ids(kept)
    reads = read_options(kept)
    for item in kept:
        check_first(item)
    return replace(options, inputs=kept), reads


def _stages(
    options: Documents, cut: Sequence[CutFile], output: str, reads: Mapping[str, ReadOptions], vocab_size: int
) -> list[Stage]:
    groups = list(group_ranges(cut, options.task_bytes, options.task_files))
    shards = shard_paths(output, len(groups))
    # ids from the data may repeat: then shards wait in _work/ until all ids are known
    waiting = work_paths(output, "unchecked", len(groups), ".arrow")
    own_ids = any(read.id_field or gives_ids(read) for read in reads.values())
    payloads = [
        ({"shard": path, "ranges": group.payload}, group.bytes >> 10)
        for group, path in zip(groups, waiting if own_ids else shards, strict=True)
    ]
    titles = any(read.title_field for read in reads.values())
    work = TokenizeRanges(output, replace(options, inputs=()), reads, own_ids, titles)
    stages = [sharded_stage("documents", payloads, work, "KiB")]
    if own_ids:
        stages += unique_ids.stages(output, waiting, shards, vocab_size, options.compression, _repeating(reads), titles)
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
