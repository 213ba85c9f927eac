"""Reading of a task's ranges, with the counts for its receipt."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from corpora.readers import Range, ReadOptions, RecordBlock
from corpora.readers.selection import read_records
from corpora.storage import files
from pipelines.documents.shard import RejectsShard
from pipelines.engine.job import Report


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
