"""Readers of the kinds of files used by data sets of tasks, given a function that turns a record into a ``RawTask``."""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, BinaryIO

from corpora.errors import FarspanError
from corpora.readers import json_array
from corpora.readers.archives import is_archive, is_zip, plan_archive, read_archive
from corpora.readers.blocks import BlockBuilder
from corpora.readers.formats.jsonl import parse as parse_line
from corpora.readers.records import RAW_BYTES, BadRecord, Cut, DamagedFile, Range
from corpora.readers.streams import STREAM_ERRORS, Line, Lines, add_lines, chunks, plan_lines, read_lines
from corpora.readers.task_data.declaration import Add, Place, RawTask, TaskData
from corpora.storage.files import Files

Parse = Callable[[dict[str, Any], Place], RawTask]
Contents = Callable[[bytes, Place], Iterator[tuple[str, RawTask | BadRecord]]]
_ENDLESS = 1 << 62  # the lines of a member have no stop
_STEP = 1 << 20
JSON_LINES = r".*\.(jsonl|json|ndjson)(\.(gz|bz2|xz|zst))?|.*\.(zip|tar|tgz|tar\.(gz|bz2|xz|zst))"


def json_lines(parse: Parse, records: str = JSON_LINES, text_field: str = "text") -> TaskData:
    """Declare a data set of files with one JSON object per line, plain, compressed or in zip and tar archives.

    Args:
        parse: record and its place -> documents and pairs; raises ``BadRecord``.
        records: regular expression of the names of these files, of archives and of their members.
    """

    def wanted(name: str) -> bool:
        return bool(re.fullmatch(records, posixpath.basename(name))) and not is_archive(name)

    def plan(path: str, files: Files, target_bytes: int) -> list[Cut]:
        if is_archive(path):
            return plan_archive(path, files, target_bytes, wanted)
        return plan_lines(path, files, target_bytes)

    def read(piece: Range, files: Files, block: BlockBuilder, add: Add) -> Iterator[int]:
        def add_line(member: str, block: BlockBuilder, line: Line) -> None:
            place = Place(piece.path, member, str(line.offset), files, block.options)
            add(place, parse(parse_line(line), place), line.data[:RAW_BYTES])

        def add_member(name: str, stream: BinaryIO) -> Iterator[int]:
            if is_zip(piece.path):
                while stream.read(_STEP):  # read to the checksum at its end before any line is used
                    pass
                stream.seek(0)
            block.prefix = f"{name}:"
            whole = Range(posixpath.basename(name), piece.format, 0, _ENDLESS, _ENDLESS, None)
            yield from add_lines(Lines(stream, whole, block.options.max_record_bytes), block, partial(add_line, name))
            block.prefix = ""

        if is_archive(piece.path):
            return read_archive(piece, files, block, wanted, add_member)
        return read_lines(piece, files, block, partial(add_line, ""))

    return TaskData(plan, read, records, text_field)


def json_records(parse: Parse, records: str = "") -> TaskData:
    """Declare a data set of files that are one JSON array of records each, read record by record, or lines of records.

    Args:
        parse: record and its place -> documents and pairs; raises ``BadRecord``.
        records: regular expression of the names of these files.
    """

    def read(piece: Range, files: Files, block: BlockBuilder, add: Add) -> Iterator[int]:
        def add_record(block: BlockBuilder, line: Line) -> None:
            place = Place(piece.path, "", str(line.offset), files, block.options)
            add(place, parse(_object(json_array.parse(line)), place), line.data[:RAW_BYTES])

        return json_array.read(piece, files, block, add_record)

    return TaskData(json_array.plan, read, records)


def json_field(parse: Parse, field: str, records: str = "") -> TaskData:
    """Declare a data set of files that are one JSON object each, with an array of records in a field.

    Args:
        parse: record and its place, with its number as key -> documents and pairs; raises ``BadRecord``.
        field: the field with the array; the fields before it have no nested values.
        records: regular expression of the names of these files.
    """

    def plan(path: str, files: Files, target_bytes: int) -> list[Cut]:
        return [Cut(0, 1, files.size(path))]

    def read(piece: Range, files: Files, block: BlockBuilder, add: Add) -> Iterator[int]:
        def add_record(block: BlockBuilder, line: Line) -> None:
            place = Place(piece.path, "", str(line.offset), files, block.options)
            add(place, parse(_object(json_array.parse(line)), place), line.data[:RAW_BYTES])

        return json_array.read_field(piece, files, block, field, add_record)

    return TaskData(plan, read, records)


def json_document(parse: Parse, records: str = "") -> TaskData:
    """Declare a data set of files that are one JSON object each: name -> record, with the name as the record's place.

    Args:
        parse: record and its place -> documents and pairs; raises ``BadRecord``.
        records: regular expression of the names of these files.
    """

    def contents(data: bytes, place: Place) -> Iterator[tuple[str, RawTask | BadRecord]]:
        for key, record in json_object(data).items():
            named = Place(place.path, place.member, key, place.files, place.options)
            try:
                yield named.key, parse(_object(record), named)
            except BadRecord as bad:
                yield named.key, bad

    return whole_files(contents, records)


def whole_files(contents: Contents, records: str = "") -> TaskData:
    """Declare a data set whose files are read whole, such as tables that refer to other files.

    Args:
        contents: bytes of a file and its place -> name and contents of each record, or the reason to reject it.
        records: regular expression of the names of these files.
    """

    def plan(path: str, files: Files, target_bytes: int) -> list[Cut]:
        return [Cut(0, 1, files.size(path))]

    def read(piece: Range, files: Files, block: BlockBuilder, add: Add) -> Iterator[int]:
        data = whole_file(piece.path, files)
        place = Place(piece.path, "", "0", files, block.options)
        try:
            for key, found in contents(data, place):
                if isinstance(found, BadRecord):
                    block.reject(key, found.reason, b"", str(found))
                else:
                    add(Place(piece.path, "", key, files, block.options), found, b"")
                yield 0
        except BadRecord as bad:
            block.reject(0, bad.reason, data, str(bad))
        yield piece.bytes

    return TaskData(plan, read, records)


def by_name(kinds: Mapping[str, TaskData], text_field: str = "text") -> TaskData:
    """Declare a data set that is published in several layouts.

    Args:
        kinds: regular expression of names of files -> declaration for such files; the first that matches is used.
    """

    def kind(path: str) -> TaskData:
        name = posixpath.basename(path)
        if found := next((data for names, data in kinds.items() if re.fullmatch(names, name)), None):
            return found
        raise FarspanError(f"{path}: not a file of this data set, whose names match {' or '.join(kinds)}")

    def plan(path: str, files: Files, target_bytes: int) -> list[Cut]:
        return kind(path).plan(path, files, target_bytes)

    def read(piece: Range, files: Files, block: BlockBuilder, add: Add) -> Iterator[int]:
        return kind(piece.path).read(piece, files, block, add)

    return TaskData(plan, read, "|".join(kinds), text_field)


def whole_file(path: str, files: Files) -> bytes:
    """Read a whole file, decompressed.

    Raises:
        DamagedFile: it is truncated or damaged.
    """
    pieces: list[bytes] = []
    with files.open(path) as file:
        try:
            pieces.extend(chunks(file, path))
        except STREAM_ERRORS as error:
            raise DamagedFile(error, 0, b"".join(pieces)[:RAW_BYTES]) from error
    return b"".join(pieces)


def json_object(data: bytes) -> dict[str, Any]:
    """Parse a file that is one JSON object.

    Raises:
        BadRecord: it is not UTF-8, or not a JSON object.
    """
    return _object(json_array.parse(Line(0, data, len(data))))


def _object(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise BadRecord("not_an_object", f"a JSON value of type {type(value).__name__}")
    return value


def text_of(record: Mapping[str, Any], name: str) -> str:
    """Return a field that has to be a string.

    Raises:
        BadRecord: it is missing, null or not a string.
    """
    if name not in record:
        raise BadRecord("missing_text", f"no field {name!r}; its fields: {', '.join(record)[:1000]}")
    value = record[name]
    if not isinstance(value, str):
        raise BadRecord("null_text" if value is None else "not_a_string", f"{name!r} is of type {type(value).__name__}")
    return value


def texts_of(record: Mapping[str, Any], name: str) -> tuple[str, ...]:
    """Return a field that has to be a list of strings.

    Raises:
        BadRecord: it is missing or anything else.
    """
    value = record.get(name)
    if not isinstance(value, list) or not all(isinstance(part, str) for part in value):
        shown = json.dumps(value, default=str)[:100]
        raise BadRecord("not_a_string", f"{name!r} is not a list of strings but {shown}")
    return tuple(value)
