"""``farspan documents``: tokenise raw text, in record ranges.

A task is a list of ranges, about ``task_bytes`` together and from at most ``task_files`` files; it becomes one shard.
Ids and rows do not depend on the boundaries of ranges. Bad records go to ``rejects/``, all others are kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from corpora.options import record_options
from corpora.readers import BLOCK_BYTES, RAW_BYTES, ReadOptions, RecordBlock, Reject
from corpora.readers.selection import gives_ids
from corpora.schemas.documents import HeldOut, rows_with_special_tokens, tokenize_documents
from corpora.storage.manifest import Manifest, Receipt
from corpora.storage.ragged import Ragged
from corpora.text.sentences import SentenceSplitter, load_splitter
from corpora.tokenizers.load import load_tokenizer
from pipelines.documents import unique_ids
from pipelines.documents.inputs import Input, revisions_of
from pipelines.documents.options import Documents, RawText
from pipelines.documents.ranges import RawFiles, ReadRanges, plain
from pipelines.documents.shard import DocumentsShard, RejectsShard
from pipelines.engine.artefacts import absolute, artefact_tokenizer, save_tokenizer
from pipelines.engine.job import Job, Report, Stage, Task, shard_paths, work_paths

_MOST_TEXTS = 4096  # maximum number of texts that are tokenised at once


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


@dataclass(frozen=True)
class TokenizeRanges:
    """Read the ranges of a task, tokenise them block by block, write one shard and the task's rejects."""

    output: str
    options: Documents  # without the inputs
    reads: Mapping[str, ReadOptions]  # of each source
    own_ids: bool  # ids may repeat, so the shard waits until those of all tasks have been compared
    titles: bool  # a source has some

    def __call__(self, task: Task, report: Report) -> Receipt:
        tokenizer, splitter = artefact_tokenizer(self.output), _splitter(self.options.sentences)
        held_out = HeldOut(self.options.held_out, self.options.seed)
        path = task.payload["shard"]
        with (
            RejectsShard.create(self.output, task.name) as rejects,
            DocumentsShard.create(
                path, tokenizer.vocab_size, self.options.compression, self.own_ids, self.titles
            ) as shard,
        ):
            reading = ReadRanges(self.reads, rejects)
            for block in _merge(self._texts(reading, task, report)):
                titles = block.titles if self.titles else None
                batch = tokenize_documents(
                    block.ids, block.texts, block.source, tokenizer, splitter, held_out, block.clusters, titles
                )
                tokens = Ragged.from_arrow(batch.column("tokens"))
                special = rows_with_special_tokens(tokens, tokenizer.owned_tokens)
                rejects.write(block.source, "", _special_rejects(block, special))
                # text without any token, such as spaces, is left out too
                short = tokens.lengths < max(1, self.reads[block.source].min_tokens)
                keep = ~(short | special)
                reading.counts[block.source].update(rejected=int(special.sum()), filtered=int((short & ~special).sum()))
                shard.write(batch if keep.all() else batch.filter(pa.array(keep)))
        reasons, damage = dict(rejects.reasons), plain(reading.damage)
        if self.own_ids:
            unique_ids.write_ids(path, shard.ids, shard.info[0])
            return Receipt(task.name, counts=plain(reading.counts), rejects=reasons, damage=damage)
        for source, count in reading.counts.items():
            count.update(shard.counts[source])
        return Receipt(task.name, shard.info, shard.totals, plain(reading.counts), reasons, damage)

    def _texts(self, reading: ReadRanges, task: Task, report: Report) -> Iterator[_Texts]:
        """Iterate over the good texts of a task in blocks, without repeated documents of data sets of tasks."""
        seen: set[str] = set()
        for source, name, block in reading.blocks(task.payload["ranges"], report):
            if not block.texts:
                continue
            ids, clusters = _document_ids(source, name, block), _clusters(source, name, block, self.reads[source])
            texts = _Texts(source, ids, block.texts, clusters, block.titles or [None] * len(ids))
            if gives_ids(self.reads[source]):
                texts = _without(texts, seen)
                reading.counts[source]["filtered"] += len(ids) - len(texts.ids)
                seen.update(texts.ids)
            if texts.ids:
                yield texts


def _special_rejects(block: _Texts, special: np.ndarray) -> Iterator[Reject]:
    """Rejects for the texts in which the tokenizer finds special tokens."""
    for row in np.flatnonzero(special).tolist():
        name = block.ids[row].removeprefix(f"{block.source}:")
        detail = "the tokenizer takes a part of the text for a special token; use another kind of tokenizer"
        yield Reject("", name, "special_token", block.texts[row].encode()[:RAW_BYTES], detail)


class _Texts(NamedTuple):
    """Texts of one source, each with its id, the name of its cluster and its title."""

    source: str
    ids: list[str]
    texts: list[str]
    clusters: list[str | None]
    titles: list[str | None]


def _without(block: _Texts, seen: set[str]) -> _Texts:
    """Leave out texts whose ids have been seen before."""
    kept = [row for row, name in enumerate(block.ids) if name not in seen]
    ids, texts = ([column[row] for row in kept] for column in (block.ids, block.texts))
    clusters, titles = ([column[row] for row in kept] for column in (block.clusters, block.titles))
    return _Texts(block.source, ids, texts, clusters, titles)


def _merge(blocks: Iterable[_Texts]) -> Iterator[_Texts]:
    """Merge small blocks, because each block has a fixed cost and files may be tiny."""
    held: _Texts | None = None
    size = 0
    for block in blocks:
        if held and (held.source != block.source or size >= BLOCK_BYTES or len(held.texts) >= _MOST_TEXTS):
            yield held
            held = None
        if held is None:
            held, size = block, 0
        else:
            held.ids.extend(block.ids)
            held.texts.extend(block.texts)
            held.clusters.extend(block.clusters)
            held.titles.extend(block.titles)
        size += sum(map(len, block.texts)) + sum(map(len, filter(None, block.titles)))
    if held:
        yield held


def _document_ids(source: str, name: str, block: RecordBlock) -> list[str]:
    if block.ids is not None:
        return [f"{source}:{name}" for name in block.ids]
    return [f"{source}:{name}:{key}" for key in block.keys]


def _clusters(source: str, name: str, block: RecordBlock, read: ReadOptions) -> list[str | None]:
    """Name of each document's cluster, unique in the artefact; None for a document without one."""
    prefix = f"{source}:" if read.cluster_field else f"{source}:{name}:"
    return [None if cluster is None else prefix + cluster for cluster in block.clusters]


@lru_cache(maxsize=2)
def _splitter(name: str) -> SentenceSplitter:
    return load_splitter(name)
