"""OpenSubtitles as OPUS distributes it: films as XML, or all films of a language as lines of text.

- ``.xml``, ``.xml.gz``, and ``.zip`` or ``.tar`` archives of them: each file is a film, each sentence a line of it.
  Both kinds of OPUS are read: ``raw`` (sentences of text) and ``xml`` (sentences of ``<w>`` words, which are joined by
  spaces; prefer ``raw``, which keeps the original spacing).
- ``.txt``, ``.txt.gz`` (monolingual text), which do not separate films. A document is the lines that start in the same
  64 KiB of the uncompressed file, about a film and a half.

Source: Lison and Tiedemann 2016, "OpenSubtitles2016", section 3; https://opus.nlpl.eu.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import BinaryIO
from xml.parsers import expat

from corpora.readers.archives import is_archive, plan_archive, read_archive
from corpora.readers.blocks import BlockBuilder, Reader
from corpora.readers.formats.text import gather_lines
from corpora.readers.records import BadRecord, Cut, DamagedFile, Range
from corpora.readers.streams import STREAM_ERRORS, Lines, chunks, compression
from corpora.storage import files

RUN_BYTES = 64 << 10
_XML = re.compile(r"\.xml(\.(gz|bz2|xz|zst))?$", re.IGNORECASE)


def plan(path: str, target_bytes: int) -> list[Cut]:
    """Split an archive between members, and lines of text between runs; an XML file is one range."""
    if is_archive(path):
        return plan_archive(path, target_bytes, _is_xml)
    size = files.size(path)
    if _is_xml(path) or compression(path):
        return [Cut(0, 1, size)]
    step = max(1, target_bytes // RUN_BYTES) * RUN_BYTES  # no range splits a run
    return [Cut(start, min(start + step, size), min(step, size - start)) for start in range(0, max(1, size), step)]


def _is_xml(path: str) -> bool:
    return bool(_XML.search(path))


def read(piece: Range, block: BlockBuilder) -> Iterator[int]:
    """Read each film, or each run of lines, as a record; its place is its path in an archive, or its first offset."""
    if is_archive(piece.path):

        def add(name: str, stream: BinaryIO) -> Iterator[int]:
            _add_film(block, name, stream, name)
            yield 0

        yield from read_archive(piece, block, _is_xml, add)
    elif _is_xml(piece.path):
        with files.open(piece.path) as file:
            try:
                _add_film(block, 0, file, piece.path)
            except STREAM_ERRORS as error:
                raise DamagedFile(error, 0) from error
    else:
        yield from _read_runs(piece, block)


def _read_runs(piece: Range, block: BlockBuilder) -> Iterator[int]:
    with files.open(piece.path) as file, gather_lines(block) as run:
        lines = Lines(file, piece, block.options.max_record_bytes)
        number = -1
        for chunk in lines:
            for line in chunk:
                if line.offset // RUN_BYTES != number:
                    run.add()
                    number = line.offset // RUN_BYTES
                run.append(line)
            yield lines.position


def _add_film(block: BlockBuilder, key: int | str, stream: BinaryIO, path: str) -> None:
    film = _Film()
    limit = block.options.max_record_bytes
    size = 0
    head = b""
    try:
        for chunk in chunks(stream, path):
            head = head or chunk
            size += len(chunk)
            if size > limit:
                raise BadRecord("too_long", f"more than --max-record-bytes {limit:,}")
            film.feed(chunk)
        film.feed(b"", last=True)
    except BadRecord as bad:
        block.reject(key, bad.reason, head, str(bad))
    else:
        block.add(key, {block.options.text_field: "\n".join(film.sentences)}, head)


class _Film:
    """The sentences of an OPUS document.

    Entity declarations are refused, because they can grow without bounds or read other files; OPUS has none.
    """

    def __init__(self) -> None:
        self.sentences: list[str] = []
        self._pieces: list[str] = []  # of the open sentence
        self._parser = expat.ParserCreate()
        self._parser.buffer_text = True
        self._parser.StartElementHandler = self._start
        self._parser.EndElementHandler = self._end
        self._parser.EntityDeclHandler = self._entity

    def feed(self, data: bytes, last: bool = False) -> None:
        """Parse a piece of the document."""
        try:
            self._parser.Parse(data, last)
        except (expat.ExpatError, ValueError, LookupError) as error:
            raise BadRecord("broken_xml", str(error)) from error

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        if name == "s":
            self._pieces = []
            self._parser.CharacterDataHandler = self._pieces.append
        elif name == "w":
            self._pieces.append(" ")

    def _end(self, name: str) -> None:
        if name == "s":
            self._parser.CharacterDataHandler = None
            # white space in the file is layout
            if sentence := " ".join("".join(self._pieces).split()):
                self.sentences.append(sentence)
            self._pieces = []

    def _entity(self, *declaration: object) -> None:
        raise BadRecord("unsafe_xml", f"declares the entity {declaration[0]!r}; subtitles need none")


READER = Reader(plan, read, published=True)
