"""Data sets indexed by a small file whose entries name other files: the ids of a split, a table of books."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from corpora.readers.blocks import BlockBuilder
from corpora.readers.options import ReadOptions
from corpora.readers.records import BadRecord, Cut, DamagedFile, Range
from corpora.readers.task_data.declaration import Add, Place, RawTask, TaskData
from corpora.readers.task_data.files import whole_file
from corpora.storage.files import Files

Entries = Callable[[bytes, Place], Sequence[tuple[str, Any]]]
ENTRIES_A_RANGE = 64  # few, because a book or report has tens of thousands of words


def indexed(entries: Entries, parse: Callable[[Any, Place], RawTask], records: str) -> TaskData:
    """Declare a data set of index files, split into ranges of entries so that many workers read the files they name.

    Args:
        entries: bytes of an index file and its place -> name and contents of each entry, in order; raises
            ``BadRecord``.
        parse: contents of an entry and its place, with the entry's name as key -> documents and pairs; raises
            ``BadRecord``.
        records: regular expression of the names of index files.
    """

    def plan(path: str, files: Files, target_bytes: int) -> list[Cut]:
        size = files.size(path)
        try:
            count = len(entries(whole_file(path, files), Place(path, "", "0", files, ReadOptions())))
        except (BadRecord, DamagedFile):
            count = 0  # reading the file reports it
        starts = range(0, max(1, count), ENTRIES_A_RANGE)
        edges = [*(size * start // max(1, count) for start in starts), size]
        return [
            Cut(start, start + ENTRIES_A_RANGE, edges[number + 1] - edges[number])
            for number, start in enumerate(starts)
        ]

    def read(piece: Range, files: Files, block: BlockBuilder, add: Add) -> Iterator[int]:
        data = whole_file(piece.path, files)
        try:
            found = entries(data, Place(piece.path, "", "0", files, block.options))[piece.start : piece.stop]
        except BadRecord as bad:
            block.reject(0, bad.reason, data, str(bad))
            found = []
        for number, (key, entry) in enumerate(found):
            place = Place(piece.path, "", key, files, block.options)
            try:
                add(place, parse(entry, place), b"")
            except BadRecord as bad:
                block.reject(key, bad.reason, b"", str(bad))
            yield piece.bytes * number // len(found)
        yield piece.bytes

    return TaskData(plan, read, records)
