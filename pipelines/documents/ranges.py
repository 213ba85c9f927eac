"""The raw files of a job, cut into record ranges and grouped for its tasks, and the reading of a task's ranges."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from corpora.readers import Range, ReadOptions, RecordBlock
from corpora.readers.selection import plan_ranges, read_records
from corpora.storage.manifest import Receipt
from pipelines.documents.inputs import (
    Input,
    check_first,
    every_file,
    leave_out_output,
    read_options,
    refuse_equal_ids,
    repeated_links,
)
from pipelines.documents.shard import RejectsShard
from pipelines.engine.job import Report, Stage, Task, make_sharded_stage

_FILE_COST = 4 << 10  # bytes that take as long to tokenise as a file takes to open
Piece = tuple[str, str, Range]
"""Source, relative path and a range of a file."""


class CutFile(NamedTuple):
    """A raw file and the record ranges that it is cut into."""

    source: str
    name: str
    ranges: Sequence[Range]

    @property
    def path(self) -> str:
        """Path in the manifest's inputs."""
        return f"{self.source}:{self.name}"


@dataclass(frozen=True)
class RawFiles:
    """The raw files of a job."""

    inputs: Sequence[Input]
    reads: Mapping[str, ReadOptions]  # of each source
    cut: Sequence[CutFile]
    groups: Sequence[Sequence[Piece]]  # the ranges that each task reads

    @classmethod
    def plan(cls, inputs: Sequence[Input], output: str, task_bytes: int, task_files: int) -> RawFiles:
        """Check the files, without those of the output, and divide them among tasks."""
        kept = leave_out_output(inputs, output)
        refuse_equal_ids(kept)
        reads = read_options(kept)
        for item in kept:
            check_first(item)
        cut = [
            CutFile(source, name, plan_ranges(path, reads[source], task_bytes))
            for source, name, path in every_file(kept)
        ]
        return cls(kept, reads, cut, list(group_ranges(cut, task_bytes, task_files)))

    @property
    def entries(self) -> tuple[Mapping[str, Any], ...]:
        """The ``inputs`` entry of a manifest."""
        return tuple({"path": file.path, "bytes": file.ranges[0].size or 0} for file in self.cut)

    @property
    def work_bytes(self) -> int:
        """Bytes to read, with ``_FILE_COST`` for each range, by which the number of workers is chosen."""
        return sum(piece.bytes + _FILE_COST for file in self.cut for piece in file.ranges)

    @property
    def of_job(self) -> dict[str, Any]:
        """What a ``Job`` records of its raw files: ``repeated_links`` and ``versions``."""
        versions = {file.path: file.ranges[0].version for file in self.cut}
        return {"repeated_links": repeated_links(self.inputs), "versions": versions}

    def read_by(self, name: str, work: Callable[[Task, Report], Receipt], shards: Sequence[str]) -> Stage:
        """Declare the stage whose tasks each read a group, whose size is in KiB, and write one of ``shards``."""
        ranges = [[(source, name, dict(vars(piece))) for source, name, piece in group] for group in self.groups]
        sizes = [sum(piece.bytes for _, _, piece in group) >> 10 for group in self.groups]
        return make_sharded_stage(name, work, "KiB", sizes, shard=shards, ranges=ranges)


def group_ranges(cut: Sequence[CutFile], target_bytes: int, max_ranges: int) -> Iterator[list[Piece]]:
    """Group consecutive ranges up to about ``target_bytes`` and at most ``max_ranges`` ranges."""
    group: list[Piece] = []
    size = 0
    for file in cut:
        for piece in file.ranges:
            if group and (size + piece.bytes > target_bytes or len(group) == max_ranges):
                yield group
                group, size = [], 0
            group.append((file.source, file.name, piece))
            size += piece.bytes
    if group:
        yield group


@dataclass(frozen=True)
class ReadRanges:
    """Reads ranges, counts their records and damage as a ``Receipt`` does, and writes rejects."""

    reads: Mapping[str, ReadOptions]  # of each source
    rejects: RejectsShard
    counts: dict[str, Counter[str]] = field(default_factory=dict)
    damage: dict[str, Counter[str]] = field(default_factory=dict)

    def blocks(
        self, ranges: Iterable[tuple[str, str, Mapping[str, Any]]], report: Report
    ) -> Iterator[tuple[str, str, RecordBlock]]:
        """Yield blocks of records, each with its source and the relative path of its file."""
        done = 0
        for source, name, values in ranges:
            piece, count = Range(**values), self.counts.setdefault(source, Counter())
            for block in read_records(piece, self.reads[source]):
                count.update(read=block.read, rejected=len(block.rejects), filtered=block.filtered)
                self.rejects.write(source, name, block.rejects)
                if block.damaged:
                    self.damage.setdefault(source, Counter())[name] += min(block.lost, piece.size or 0)
                yield source, name, block
                report(done + block.position >> 10)
            done += piece.bytes
