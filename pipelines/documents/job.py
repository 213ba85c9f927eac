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
from corpora.readers import BLOCK_BYTES, RAW_BYTES, ReadOptions, Reject
from corpora.readers.selection import gives_ids
from corpora.schemas.documents import HeldOut, rows_with_special_tokens, tokenize_documents
from corpora.storage.manifest import Manifest, Receipt
from corpora.storage.ragged import Ragged
from corpora.text.sentences import load_splitter
from corpora.tokenizers.load import load_tokenizer
from pipelines.documents.inputs import Input, revisions_of
from pipelines.documents.options import Documents, RawText
from pipelines.documents.ranges import RawFiles, ReadRanges
from pipelines.documents.shard import DocumentsShard, RejectsShard, plain
from pipelines.documents.unique_ids import unique_stages, write_ids
from pipelines.engine.artefacts import absolute, artefact_tokenizer, save_tokenizer
from pipelines.engine.job import Job, Report, Stage, Task, shard_paths, work_paths

_MOST_TEXTS = 4096  # maximum number of texts that are tokenised at once


def plan_raw(raw: RawText, options: Documents) -> Job:
    """Plan the job for the files that ``raw`` names."""
    return plan(replace(options, inputs=tuple(Input.parse(text, raw.read) for text in raw.input)))


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
    terms = {"license": options.license, "language": list(options.language)}  # which derived artefacts inherit
    config |= {name: value for name, value in terms.items() if value}
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
        stages += unique_stages(output, waiting, shards, vocab_size, options.compression, repeating, titles)
    return stages


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
        tokenizer, splitter = artefact_tokenizer(self.output), _load_splitter(self.options.sentences)
        held_out = HeldOut(self.options.held_out, self.options.seed)
        path = task.payload["shard"]
        with (
            RejectsShard.create(self.output, task.name) as rejects,
            DocumentsShard.create(
                path, tokenizer.vocab_size, self.options.compression, self.own_ids, self.titles
            ) as shard,
        ):
            reading = ReadRanges(self.reads, rejects)
            for source, block in _merge(self._texts(reading, task, report)):
                ids, texts, clusters, titles = map(list, zip(*block, strict=True))
                batch = tokenize_documents(
                    ids, texts, source, tokenizer, splitter, held_out, clusters, titles if self.titles else None
                )
                tokens = Ragged.from_arrow(batch.column("tokens"))
                special = rows_with_special_tokens(tokens, tokenizer.owned_tokens)
                rejects.write(source, "", _special_rejects(source, [block[row] for row in np.flatnonzero(special)]))
                # text without any token, such as spaces, is left out too
                short = tokens.lengths < max(1, self.reads[source].min_tokens)
                keep = ~(short | special)
                reading.counts[source].update(rejected=int(special.sum()), filtered=int((short & ~special).sum()))
                shard.write(batch if keep.all() else batch.filter(pa.array(keep)))
        reasons, damage = dict(rejects.reasons), plain(reading.damage)
        if self.own_ids:
            write_ids(path, shard.ids, shard.info[0])
            return Receipt(task.name, counts=plain(reading.counts), rejects=reasons, damage=damage)
        for source, count in reading.counts.items():
            count.update(shard.counts[source])
        return Receipt(task.name, shard.info, shard.totals, plain(reading.counts), reasons, damage)

    def _texts(self, reading: ReadRanges, task: Task, report: Report) -> Iterator[tuple[str, list[_Text]]]:
        """Yield source and good texts of a task in blocks, without repeated documents of data sets of tasks."""
        seen: set[str] = set()
        for source, name, block in reading.blocks(task.payload["ranges"], report):
            read, names = self.reads[source], block.ids
            if names is None:
                names = [f"{name}:{key}" for key in block.keys]
            ids = [f"{source}:{one}" for one in names]
            # names of clusters, unique in the artefact; None for a document without one
            prefix = f"{source}:" if read.cluster_field else f"{source}:{name}:"
            clusters = [None if cluster is None else prefix + cluster for cluster in block.clusters]
            texts = list(map(_Text, ids, block.texts, clusters, block.titles or [None] * len(ids)))
            if gives_ids(read):
                texts = [text for text in texts if text.id not in seen]
                reading.counts[source]["filtered"] += len(ids) - len(texts)
                seen.update(text.id for text in texts)
            if texts:
                yield source, texts


class _Text(NamedTuple):
    """A text with its id, the name of its cluster and its title."""

    id: str
    text: str
    cluster: str | None
    title: str | None


def _special_rejects(source: str, texts: Iterable[_Text]) -> Iterator[Reject]:
    """Rejects for texts in which the tokenizer finds special tokens."""
    detail = "the tokenizer takes a part of the text for a special token; use another kind of tokenizer"
    for one in texts:
        yield Reject("", one.id.removeprefix(f"{source}:"), "special_token", one.text.encode()[:RAW_BYTES], detail)


def _merge(blocks: Iterable[tuple[str, list[_Text]]]) -> Iterator[tuple[str, list[_Text]]]:
    """Merge small blocks, because each block has a fixed cost and files may be tiny."""
    held: list[_Text] = []
    source, size = "", 0
    for name, texts in blocks:
        if held and (name != source or size >= BLOCK_BYTES or len(held) >= _MOST_TEXTS):
            yield source, held
            held, size = [], 0
        source = name
        held += texts
        size += sum(len(one.text) + len(one.title or "") for one in texts)
    if held:
        yield source, held


_load_splitter = lru_cache(maxsize=2)(load_splitter)
