"""A task of `farspan documents`: read record ranges, tokenise their texts, write a shard and the rejects."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from corpora.readers import BLOCK_BYTES, RAW_BYTES, ReadOptions, RecordBlock, Reject
from corpora.readers.selection import gives_ids
from corpora.schemas.documents import HeldOut, rows_with_special_tokens, tokenize_documents
from corpora.storage.manifest import Receipt
from corpora.storage.ragged import Ragged
from corpora.text.sentences import SentenceSplitter, load_splitter
from pipelines.documents import unique_ids
from pipelines.documents.options import Documents
from pipelines.documents.ranges import ReadRanges, plain
from pipelines.documents.shard import DocumentsShard, RejectsShard
from pipelines.engine.artefacts import artefact_tokenizer
from pipelines.engine.job import Report, Task

_MOST_TEXTS = 4096  # maximum number of texts that are tokenised at once


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
