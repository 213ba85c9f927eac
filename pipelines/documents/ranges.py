"""Division of raw files into record ranges, and of the ranges among tasks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from corpora.readers import Range, ReadOptions, RecordBlock
from corpora.readers.selection import plan_ranges, read_records
from corpora.storage import files
from pipelines.documents.inputs import Input, every_file
from pipelines.documents.shard import RejectsShard
from pipelines.engine.job import Report

_FILE_COST = 4 << 10  # bytes that take as long to tokenise as a file takes to open


class CutFile(NamedTuple):
    """A raw file and the record ranges that it is cut into."""

    source: str
    name: str
    ranges: Sequence[Range]


@dataclass(frozen=True)
class Group:
    """The pieces that one task reads: source, relative path and range of each."""

    pieces: Sequence[tuple[str, str, Range]]

    @property
    def payload(self) -> list[tuple[str, str, dict[str, Any]]]:
        """The pieces in the form of a task's payload."""
        return [(source, name, dict(vars(piece))) for source, name, piece in self.pieces]

    @property
    def bytes(self) -> int:
        return sum(piece.bytes for _, _, piece in self.pieces)


def cut_files(inputs: tuple[Input, ...], reads: Mapping[str, ReadOptions], target_bytes: int) -> list[CutFile]:
    """Cut every file into ranges of about ``target_bytes``."""
    return [
        CutFile(source, name, plan_ranges(path, files, reads[source], target_bytes))
        for source, name, path in every_file(inputs)
    ]


def list_inputs(cut: Sequence[CutFile]) -> tuple[Mapping[str, Any], ...]:
    """Return the ``inputs`` entry of a manifest."""
    return tuple({"path": f"{file.source}:{file.name}", "bytes": file.ranges[0].size or 0} for file in cut)


def list_versions(cut: Sequence[CutFile]) -> dict[str, str]:
    """Return the version of each of ``list_inputs``, by its path."""
    return {f"{file.source}:{file.name}": file.ranges[0].version for file in cut}


def work_bytes(cut: Sequence[CutFile]) -> int:
    """Amount of work, by which the number of workers is chosen: bytes to read, with ``_FILE_COST`` for each range."""
    return sum(piece.bytes + _FILE_COST for file in cut for piece in file.ranges)


def group_ranges(cut: Sequence[CutFile], target_bytes: int, max_ranges: int) -> Iterator[Group]:
    """Group consecutive ranges up to about ``target_bytes`` and at most ``max_ranges`` ranges."""
    group: list[tuple[str, str, Range]] = []
    size = 0
    for file in cut:
        for piece in file.ranges:
            if group and (size + piece.bytes > target_bytes or len(group) == max_ranges):
                yield Group(group)
                group, size = [], 0
            group.append((file.source, file.name, piece))
            size += piece.bytes
    if group:
        yield Group(group)


@dataclass(frozen=True)
class ReadRanges:
    """Reads ranges, counts their records and damage, and writes rejects.

    Attributes:
        reads: read options of each source.
        counts, damage: as in ``Receipt``.
    """

    reads: Mapping[str, ReadOptions]
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
            for block in read_records(piece, files, self.reads[source]):
                count.update(read=block.read, rejected=len(block.rejects), filtered=block.filtered)
                self.rejects.write(source, name, block.rejects)
                if block.damaged:
                    self.damage.setdefault(source, Counter())[name] += min(block.lost, piece.size or 0)
                yield source, name, block
                report(done + block.position >> 10)
            done += piece.bytes


def plain(counts: Mapping[str, Mapping[str, int]]) -> dict[str, dict[str, int]]:
    """Return counts as JSON can hold them."""
    return {source: dict(numbers) for source, numbers in counts.items()}
