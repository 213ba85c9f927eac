"""RealNews: JSON lines with ``text``, ``title``, ``domain``, ``url``; as published (``realnews.tar.gz``) or unpacked.

Source: Zellers et al. 2019, "Defending Against Neural Fake News", appendix A. The text alone is the document.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from typing import BinaryIO

from corpora.readers.archives import is_archive, is_zip, plan_archive, read_archive
from corpora.readers.blocks import BlockBuilder
from corpora.readers.formats import jsonl
from corpora.readers.reader import Reader
from corpora.readers.records import Cut, Range
from corpora.readers.streams import Lines, add_lines, plan_lines
from corpora.storage.files import Files

_ENDLESS = 1 << 62  # the lines of a member have no stop
_STEP = 1 << 20


def plan(path: str, files: Files, target_bytes: int) -> list[Cut]:
    """Split the published archive between members, and a file of lines into ranges."""
    if is_archive(path):
        return plan_archive(path, files, target_bytes, _is_lines)
    return plan_lines(path, files, target_bytes)


def _is_lines(name: str) -> bool:
    return name.lower().endswith(jsonl.READER.suffixes)


def read(piece: Range, files: Files, block: BlockBuilder) -> Iterator[int]:
    """Read each line as a record; in an archive, its place is ``member:offset``."""
    if not is_archive(piece.path):
        return jsonl.read(piece, files, block)

    def add(name: str, stream: BinaryIO) -> Iterator[int]:
        if is_zip(piece.path):
            while stream.read(_STEP):  # read to the checksum at its end before any line is used
                pass
            stream.seek(0)
        block.prefix = f"{name}:"
        whole = Range(posixpath.basename(name), piece.format, 0, _ENDLESS, _ENDLESS, None)
        yield from add_lines(Lines(stream, whole, block.options.max_record_bytes), block, jsonl.add)
        block.prefix = ""

    return read_archive(piece, files, block, _is_lines, add)


def fields(path: str, files: Files) -> dict[str, int]:
    """Return the fields of JSON lines; empty for an archive, whose fields are not known before it is read."""
    return {} if is_archive(path) else jsonl.fields(path, files)


READER = Reader(plan, read, fields, published=True)
