"""Books3 (``books3.tar.gz`` with ``.../Title.epub.txt``) and other archives with one text per member."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import BinaryIO

from corpora.readers.archives import plan_archive, read_archive
from corpora.readers.blocks import BlockBuilder, Reader
from corpora.readers.formats import text
from corpora.readers.records import Range


def _is_text(name: str) -> bool:
    return name.lower().endswith(text.READER.suffixes)


def read(piece: Range, block: BlockBuilder) -> Iterator[int]:
    """Read each text member (``.txt``, ``.text``) as a record; its place is its path in the archive."""

    def add(name: str, stream: BinaryIO) -> Iterator[int]:
        data = stream.read(block.options.max_record_bytes + 1)
        text.add_whole(block, name, data)
        yield len(data)

    return read_archive(piece, block, _is_text, add)


READER = Reader(partial(plan_archive, wanted=_is_text), read, published=True)
