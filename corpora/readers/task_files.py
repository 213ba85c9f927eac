"""Readers of the kinds of files used by data sets of tasks, given a function that turns a record into a ``RawTask``.

The argument ``records`` is a regular expression of the names of files with records, and of members of archives. Other
files are read if a record needs them (``Place.read_beside``).
"""

from __future__ import annotations

import posixpath
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any

from corpora.errors import FarspanError
from corpora.readers import json_array
from corpora.readers.archives import is_archive, lines_or_archives
from corpora.readers.blocks import BlockBuilder, Reader
from corpora.readers.formats.text import plan_file
from corpora.readers.options import ReadOptions
from corpora.readers.raw_tasks import Place, RawRecord, RawTask
from corpora.readers.records import BadRecord, Cut, DamagedFile, Range
from corpora.readers.streams import Line, as_object, whole_file
from corpora.storage import files

Parse = Callable[[RawRecord, Place], RawTask]
"""Record and its place -> documents and pairs; raises ``BadRecord`` to reject it, as the functions below do."""
Entries = Callable[[bytes, Place], Sequence[tuple[str, Any]]]
"""Bytes of a file and its place -> name and contents of each entry, in order."""
task_reader = partial(Reader, fields=lambda path: {}, published=True, own_ids=True)
"""Declares a data set of tasks, by ``plan``, ``read``, and by name, other properties of a ``Reader``."""
ENTRIES_A_RANGE = 64  # few, because a book or report has tens of thousands of words
JSON_LINES = r".*\.(jsonl|json|ndjson)(\.(gz|bz2|xz|zst))?|.*\.(zip|tar|tgz|tar\.(gz|bz2|xz|zst))"


def line_adder(parse: Parse) -> Callable[[BlockBuilder, Line], None]:
    """Return a function that adds the record on a line to a block."""
    return lambda block, line: block.add_task(line.offset, parse, RawRecord(line.record()), line.data)


def json_lines(parse: Parse, records: str = JSON_LINES, text_field: str = "text") -> Reader:
    """Declare a data set of files with one JSON object per line, plain, compressed or in zip and tar archives."""

    def wanted(name: str) -> bool:
        return bool(re.fullmatch(records, posixpath.basename(name))) and not is_archive(name)

    return task_reader(*lines_or_archives(wanted, line_adder(parse)), records=records, text_field=text_field)


def json_records(parse: Parse, records: str = "") -> Reader:
    """Declare a data set of files that are one JSON array of records each, or have a record on each line."""
    return task_reader(json_array.plan, partial(json_array.read, add=line_adder(parse)), records=records)


def json_field(parse: Parse, field: str, records: str = "") -> Reader:
    """Declare a data set of files that are one JSON object each, with an array of records in ``field``.

    The fields before it have no nested values. The place of a record is its number.
    """
    read = partial(json_array.read_field, field=field, add=line_adder(parse))
    return task_reader(plan_file, read, records=records)


def json_document(parse: Parse, records: str = "") -> Reader:
    """Declare a data set of files that are one JSON object each: name -> record; the place of a record is its name."""
    return whole_files(
        lambda data, place: list(json_object(data).items()),
        lambda record, place: parse(RawRecord(as_object(record)), place),
        records,
    )


def whole_files(entries: Entries, parse: Callable[[Any, Place], RawTask], records: str = "") -> Reader:
    """Declare a data set whose files are parsed as a whole, each as one range."""

    def plan(path: str, target_bytes: int) -> list[Cut]:
        return [Cut(0, sys.maxsize, files.size(path))]

    return replace(index_files(entries, parse, records), plan=plan)


def index_files(entries: Entries, parse: Callable[[Any, Place], RawTask], records: str) -> Reader:
    """Declare a data set of index files, whose entries name other files: the ids of a split, a table of books.

    An index is split into ranges of entries, so that many workers read the files that they name.
    """

    def plan(path: str, target_bytes: int) -> list[Cut]:
        size = files.size(path)
        try:
            count = len(entries(whole_file(path), Place(path, "", "0", ReadOptions())))
        except (BadRecord, DamagedFile):
            count = 0  # reading the file reports it
        starts = range(0, max(1, count), ENTRIES_A_RANGE)
        edges = [*(size * start // max(1, count) for start in starts), size]
        return [
            Cut(start, start + ENTRIES_A_RANGE, stop - begin)
            for start, (begin, stop) in zip(starts, pairwise(edges), strict=True)
        ]

    def read(piece: Range, block: BlockBuilder) -> Iterator[int]:
        data = whole_file(piece.path)
        part: Sequence[tuple[str, Any]] = []
        with block.reject_if_bad(0, data):
            part = entries(data, block.place("0"))[piece.start : piece.stop]
        for number, (key, entry) in enumerate(part):
            with block.reject_if_bad(key):
                block.add_task(key, parse, entry)
            yield piece.bytes * number // len(part)
        yield piece.bytes

    return task_reader(plan, read, records=records)


def by_name(readers: Mapping[str, Reader], text_field: str = "text") -> Reader:
    """Declare a data set that is published in several layouts: names of files -> reader, the first that matches."""

    def of(path: str) -> Reader:
        name = posixpath.basename(path)
        if reader := next((reader for names, reader in readers.items() if re.fullmatch(names, name)), None):
            return reader
        raise FarspanError(f"{path}: not a file of this data set, whose names match {' or '.join(readers)}")

    return task_reader(
        lambda path, target_bytes: of(path).plan(path, target_bytes),
        lambda piece, block: of(piece.path).read(piece, block),
        records="|".join(readers),
        text_field=text_field,
    )


def json_object(data: bytes) -> RawRecord:
    """Parse a file that is one JSON object."""
    return RawRecord(Line(0, data, len(data)).record())
