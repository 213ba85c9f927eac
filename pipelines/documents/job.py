"""``farspan documents``: raw text to tokenised documents, in record ranges.

A task is a list of ranges of about ``task_bytes`` together, of ``task_files`` files at most, and becomes one shard; how
ranges were cut shows in no id and no byte of a row. Bad records go to ``rejects/``, their neighbours stay.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import lru_cache, partial
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from corpora.errors import FarspanError
from corpora.readers import (
    BLOCK_BYTES,
    RAW_BYTES,
    Range,
    ReadOptions,
    RecordBlock,
    Reject,
    check_fields,
    plan_ranges,
    read_records,
)
from corpora.schemas.documents import HeldOut, rows_with_special_tokens, tokenize_documents
from corpora.storage import files
from corpora.storage.manifest import Manifest, Receipt
from corpora.storage.ragged import Ragged
from corpora.storage.shards import shard_name
from corpora.text.sentences import SentenceSplitter, load_splitter
from pipelines.documents import unique_ids
from pipelines.documents.inputs import Input, every_file, read_options, refuse_equal_ids
from pipelines.documents.options import Documents
from pipelines.documents.shard import DocumentsShard, RejectsShard
from pipelines.engine.artefacts import absolute, artefact_tokenizer, save_tokenizer, tokenizer_at
from pipelines.engine.finalize import WORK
from pipelines.engine.job import Job, Report, Stage, Task

_FILE_COST = 4 << 10  # bytes that are tokenised in the time that opening a file takes
_MOST_TEXTS = 4096  # tokenised at once


def plan(options: Documents) -> Job:
    """Check the options, look at every input's size and lay out the tasks.

    Raises:
        FarspanError: two inputs would give equal ids, one source is to be read in two ways, or an option is out of
            range.
    """
    output = absolute(options.output)
    tokenizer = tokenizer_at(options.tokenizer)
    splitter = load_splitter(options.sentences)
    held_out = HeldOut(options.held_out, options.seed)
    for flag, number in (("--task-bytes", options.task_bytes), ("--task-files", options.task_files)):
        if number < 1:
            raise FarspanError(f"{flag} {number}: give a positive number")
    # what an earlier run of the same job left below an input folder is no input
    kept = tuple(replace(item, paths=_outside(item.paths, output)) for item in options.inputs)
    options = replace(options, inputs=kept)
    refuse_equal_ids(options.inputs)
    reads = read_options(options.inputs)
    for item in options.inputs:
        _check_first(item)
    # (source, relative path, its ranges) of every file
    planned = [
        (source, name, plan_ranges(path, files, reads[source], options.task_bytes))
        for source, name, path in every_file(options.inputs)
    ]
    ranges = [(source, name, piece) for source, name, pieces in planned for piece in pieces]
    groups = list(_grouped(ranges, options.task_bytes, options.task_files))
    shards = [os.path.join(output, "shards", shard_name(index, len(groups))) for index in range(len(groups))]
    # ids that the user brings may repeat: shards then wait in _work/ until all ids are known
    waiting = [os.path.join(output, WORK, f"unchecked-{index:05d}.arrow") for index in range(len(groups))]
    own_ids = any(read.id_field for read in reads.values())
    tasks = [
        Task(
            f"documents-{index:05d}",
            {
                "shard": waiting[index] if own_ids else shards[index],
                "ranges": [(source, name, dict(vars(piece))) for source, name, piece in group],
            },
            sum(piece.bytes for _, _, piece in group) >> 10,
        )
        for index, group in enumerate(groups)
    ]
    config = {
        "builder": "documents",
        "sources": sorted(reads),
        "sentences": {"name": splitter.name, "version": splitter.version},
        "held_out": options.held_out,
        "read": {source: asdict(read) for source, read in reads.items()},
        "task_bytes": options.task_bytes,
        "task_files": options.task_files,
        "compression": options.compression,
    }
    inputs = tuple({"path": f"{source}:{name}", "bytes": pieces[0].size or 0} for source, name, pieces in planned)
    repeated: Counter[str] = Counter()
    for item in options.inputs:
        repeated[item.source] += item.repeated
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
        inputs=inputs,
    )
    work = TokenizeRanges(output, options.sentences, held_out, reads, own_ids, options.compression)
    stages = [Stage("documents", tasks, work, "KiB")]
    if own_ids:
        stages += unique_ids.stages(output, waiting, shards, tokenizer.vocab_size, options.compression)
    return Job(
        output,
        head,
        stages,
        partial(save_tokenizer, tokenizer),
        sum(piece.bytes + _FILE_COST for _, _, piece in ranges),
        options.error_budget,
        repeated,
    )


def _check_first(item: Input) -> None:
    """Look at the fields of an input's first file, unless it is none that can be read."""
    for path in item.paths:
        try:
            files.size(path)
        except OSError:
            continue  # becomes a dead letter
        check_fields(path, files, item.read)
        return


def _outside(paths: tuple[str, ...], folder: str) -> tuple[str, ...]:
    return tuple(path for path in paths if not path.startswith(folder + "/"))


def _grouped(ranges: list[tuple[str, str, Range]], target: int, most: int) -> Iterator[list[tuple[str, str, Range]]]:
    group: list[tuple[str, str, Range]] = []
    size = 0
    for entry in ranges:
        if group and (size + entry[2].bytes > target or len(group) == most):
            yield group
            group, size = [], 0
        group.append(entry)
        size += entry[2].bytes
    if group:
        yield group


@dataclass(frozen=True)
class TokenizeRanges:
    """Read the ranges of a task, tokenise them block by block, write one shard and the task's rejects."""

    output: str
    sentences: str
    held_out: HeldOut
    reads: Mapping[str, ReadOptions]
    own_ids: bool
    compression: str | None

    def __call__(self, task: Task, report: Report) -> Receipt:
        tokenizer, splitter = artefact_tokenizer(self.output), _splitter(self.sentences)
        path = task.payload["shard"]
        counts: dict[str, Counter[str]] = {}
        damage: dict[str, Counter[str]] = {}
        dead = os.path.join(self.output, "rejects", f"{task.name}.arrow")
        with (
            RejectsShard(dead) as rejects,
            DocumentsShard(path, tokenizer.vocab_size, self.compression, self.own_ids) as shard,
        ):
            for block in _merged(self._blocks(task, counts, damage, rejects, report)):
                batch = tokenize_documents(
                    block.ids, block.texts, block.source, tokenizer, splitter, self.held_out, block.clusters
                )
                tokens = Ragged.from_arrow(batch.column("tokens"))
                special = rows_with_special_tokens(tokens, tokenizer.owned_tokens)
                rejects.write(block.source, "", _special_letters(block, special))
                # only spaces, say: text that the tokenizer turns into nothing is left out too
                short = tokens.lengths < max(1, self.reads[block.source].min_tokens)
                keep = ~(short | special)
                counts[block.source]["rejected"] += int(special.sum())
                counts[block.source]["filtered"] += int((short & ~special).sum())
                shard.write(batch if keep.all() else batch.filter(pa.array(keep)))
        lost = _plain(damage)
        if self.own_ids:
            unique_ids.write_ids(path, shard.ids, shard.info[0].sha256)
            return Receipt(task.name, counts=_plain(counts), rejects=dict(rejects.reasons), damage=lost)
        for source, count in counts.items():
            count.update(shard.counts[source])
        return Receipt(task.name, shard.info, shard.totals, _plain(counts), dict(rejects.reasons), lost)

    def _blocks(
        self,
        task: Task,
        counts: dict[str, Counter[str]],
        damage: dict[str, Counter[str]],
        rejects: RejectsShard,
        report: Report,
    ) -> Iterator[_Texts]:
        """The good texts of a task block by block; counts what was read, and writes dead letters."""
        done = 0
        for source, name, values in task.payload["ranges"]:
            piece, read = Range(**values), self.reads[source]
            count = counts.setdefault(source, Counter())
            for block in read_records(piece, files, read):
                count["read"] += block.read
                count["rejected"] += len(block.rejects)
                count["filtered"] += block.filtered
                rejects.write(source, name, block.rejects)
                if block.damaged:
                    damage.setdefault(source, Counter())[name] += min(block.lost, piece.size or 0)
                if block.texts:
                    ids, clusters = _document_ids(source, name, block), _clusters(source, name, block, read)
                    yield _Texts(source, ids, block.texts, clusters)
                report(done + block.position >> 10)
            done += piece.bytes


def _special_letters(block: _Texts, special: np.ndarray) -> Iterator[Reject]:
    """Dead letters of the texts for which the tokenizer yields special tokens."""
    for row in np.flatnonzero(special).tolist():
        name = block.ids[row].removeprefix(f"{block.source}:")
        detail = "the tokenizer takes a part of the text for a special token; use another kind of tokenizer"
        yield Reject("", name, "special_token", block.texts[row].encode()[:RAW_BYTES], detail)


class _Texts(NamedTuple):
    """Texts of one source, with the id of each and the name of its cluster."""

    source: str
    ids: list[str]
    texts: list[str]
    clusters: list[str | None]


def _merged(blocks: Iterable[_Texts]) -> Iterator[_Texts]:
    """The same texts in fewer blocks, since a block costs as much as many short texts; files may be tiny."""
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
        size += sum(map(len, block.texts))
    if held:
        yield held


def _plain(counts: dict[str, Counter[str]]) -> dict[str, dict[str, int]]:
    return {source: dict(count) for source, count in counts.items()}


def _document_ids(source: str, name: str, block: RecordBlock) -> list[str]:
    if block.ids is not None:
        return [f"{source}:{own}" for own in block.ids]
    return [f"{source}:{name}:{key}" for key in block.keys]


def _clusters(source: str, name: str, block: RecordBlock, read: ReadOptions) -> list[str | None]:
    """What names each document's cluster in the whole artefact, as its id does the document."""
    place = f"{source}:" if read.cluster_field else f"{source}:{name}:"
    return [None if own is None else place + own for own in block.clusters]


@lru_cache(maxsize=2)
def _splitter(name: str) -> SentenceSplitter:
    return load_splitter(name)
