"""Reading of the members of tar and zip archives, without unpacking to disk.

A tar archive, plain or compressed as a whole, is read forwards in bounded memory; a plain one is split into ranges of
members. A zip archive is split by the members in its directory; without the directory it cannot be read.
"""

from __future__ import annotations

import io
import posixpath
import re
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise
from typing import BinaryIO, cast

from corpora.readers.blocks import BlockBuilder, Plan, Read
from corpora.readers.records import Cut, DamagedFile, Range, group
from corpora.readers.streams import (
    STREAM_ERRORS,
    Line,
    Lines,
    add_lines,
    compression,
    plan_lines,
    read_lines,
    sound_chunks,
)
from corpora.storage import files

_ZIP_ERRORS = (zipfile.BadZipFile, EOFError, ValueError, RuntimeError)  # the last: encrypted, or an unknown version
MEMBER_ERRORS = (*STREAM_ERRORS, *_ZIP_ERRORS, tarfile.TarError)
_TAR = re.compile(r"\.(tar|tar\.(gz|bz2|xz|zst)|tgz)$", re.IGNORECASE)
_LONGEST_NAME = 1 << 20  # bytes of a header that holds a name; it is read as a whole
_NAMING = (tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK, tarfile.XHDTYPE, tarfile.XGLTYPE, b"X")
_STEP = 1 << 20
_ENDLESS = 1 << 62  # the lines of a member have no stop
_SIDE_FILES = re.compile(r"(^|/)(\._[^/]*$|__MACOSX/)")  # files that macOS adds

Wanted = Callable[[str], bool]
Add = Callable[[str, BinaryIO], Iterator[int]]  # name and content of a member -> bytes of it read so far, repeatedly


def is_archive(path: str) -> bool:
    """Return True for the name of a tar archive, compressed or not, or of a zip archive."""
    return is_zip(path) or bool(_TAR.search(path))


def is_zip(path: str) -> bool:
    """Return True for the name of a zip archive."""
    return path.lower().endswith(".zip")


def plan_archive(path: str, target_bytes: int, wanted: Wanted) -> list[Cut]:
    """Split an archive between members.

    An archive is a single range if it is compressed as a whole, or has a fault that only all members together show: a
    name that occurs twice, or no member of the wanted format.
    """
    size = files.size(path)
    if compression(path):
        return [Cut(0, 1, size)]
    with files.open(path) as file:
        if is_zip(path):
            try:
                members = zipfile.ZipFile(file).infolist()
            except _ZIP_ERRORS:
                return [Cut(0, 1, size)]
            if _one_range([info.filename for info in members], wanted):
                return [Cut(0, len(members), size)]
            return group([info.compress_size for info in members], target_bytes)
        names, edges = [], []
        try:
            for _, header in _headers(file):
                names.append(header.name)
                edges.append(header.offset)
        except DamagedFile:
            pass  # reading the last range reports it
    if _one_range(names, wanted):
        return [Cut(0, size, size)]
    edges = [0, *edges[1:], size]
    cuts = group([stop - start for start, stop in pairwise(edges)], target_bytes)
    return [Cut(edges[cut.start], edges[cut.stop], cut.bytes) for cut in cuts]


def _one_range(names: list[str], wanted: Wanted) -> bool:
    return len(set(names)) < len(names) or not any(map(wanted, names))


def read_archive(piece: Range, block: BlockBuilder, wanted: Wanted, add: Add) -> Iterator[int]:
    """Pass every wanted member of a range to ``add``.

    Folders, links and devices are skipped. A name that leads out of the archive, or that occurred before, is a reject.
    A damaged member is a reject, and its neighbours are read unless the archive itself ends there.
    """
    seen: set[str] = set()
    with files.open(piece.path) as file:
        read = _zip_members if is_zip(piece.path) else _tar_members
        for name, opened, position, size in read(file, piece):
            if not wanted(name) or _SIDE_FILES.search(name):
                continue
            if why := _unsafe(name):
                block.reject(name, "unsafe_name", b"", f"{why}; pack the archive again with plain relative names")
            elif name in seen:
                block.reject(name, "duplicate_name", b"", "an earlier member of the archive has this name")
            else:
                stream = None
                try:
                    with opened() as stream:
                        for done in add(name, stream):
                            yield min(position + done, piece.bytes)
                except (DamagedFile, *MEMBER_ERRORS) as error:
                    damaged = error if isinstance(error, DamagedFile) else DamagedFile(_as_end(error), name)
                    if isinstance(stream, _Body) and stream.broken:  # the archive itself is truncated or damaged
                        raise damaged from error
                    block.damage(damaged, size)
                block.prefix = ""
            seen.add(name)
            yield min(position, piece.bytes)
    if not seen and piece.is_whole:
        block.reject(0, "no_member", b"", "the archive has no member of the kind that the format reads")


def lines_or_archives(wanted: Wanted, add: Callable[[BlockBuilder, Line], None]) -> tuple[Plan, Read]:
    """Return the ``plan`` and ``read`` of a ``Reader`` of files of lines, and of archives with such members.

    ``wanted`` is true of the names of members with lines of records. The place of a record in an archive is
    ``member:offset``.
    """

    def plan(path: str, target_bytes: int) -> list[Cut]:
        return plan_archive(path, target_bytes, wanted) if is_archive(path) else plan_lines(path, target_bytes)

    def read(piece: Range, block: BlockBuilder) -> Iterator[int]:
        def add_member(name: str, stream: BinaryIO) -> Iterator[int]:
            if is_zip(piece.path):
                while stream.read(_STEP):  # read to the checksum at its end before any line is used
                    pass
                stream.seek(0)
            block.prefix = f"{name}:"
            whole = Range(posixpath.basename(name), piece.format, 0, _ENDLESS, _ENDLESS, None)
            yield from add_lines(Lines(stream, whole, block.options.max_record_bytes), block, add)

        if is_archive(piece.path):
            return read_archive(piece, block, wanted, add_member)
        return read_lines(piece, block, add)

    return plan, read


def _as_end(error: Exception) -> Exception:
    """Convert tarfile's ``ReadError``, raised if a member's bytes end early, to ``EOFError``."""
    return EOFError(str(error)) if isinstance(error, tarfile.ReadError) else error


def _unsafe(name: str) -> str | None:
    if "\0" in name or name != name.encode(errors="replace").decode():
        return "the name is not UTF-8"
    if name.startswith(("/", "\\")) or re.match("[A-Za-z]:", name):
        return "the name is an absolute path"
    if ".." in re.split(r"[/\\]", name):
        return "the name leads out of the archive"
    return None


Opened = Callable[[], BinaryIO]


def _tar_members(file: BinaryIO, piece: Range) -> Iterator[tuple[str, Opened, int, int]]:
    packed = compression(piece.path) is not None
    stream = cast(BinaryIO, _Forwards(sound_chunks(file, piece.path))) if packed else file
    start = 0 if packed else piece.start
    stream.seek(start)
    for archive, header in _headers(stream):
        if not packed and header.offset >= piece.stop:
            return
        if header.isreg():
            yield header.name, partial(_open, stream, archive, header), file.tell() - start, header.size


def _open(stream: BinaryIO, archive: tarfile.TarFile, header: tarfile.TarInfo) -> BinaryIO:
    return cast(BinaryIO, archive.extractfile(header) if header.issparse() else _Body(stream, header.size))


class _Body(io.BufferedIOBase):
    """The ``size`` bytes of a member from the current position of ``stream``; if truncated, all bytes that exist."""

    def __init__(self, stream: BinaryIO, size: int) -> None:
        self._stream, self._left, self._at = stream, size, 0
        self.broken = False  # True if the end could not be read

    def readable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def read1(self, size: int = -1, /) -> bytes:
        wanted = self._left if size < 0 else min(size, self._left)
        try:
            data: bytes = self._stream.read1(wanted) if wanted else b""  # type: ignore[attr-defined]
            if wanted and not data:
                raise EOFError("the archive ends inside a member")
        except STREAM_ERRORS:
            self.broken = True
            raise
        self._left -= len(data)
        self._at += len(data)
        return data

    def read(self, size: int | None = -1, /) -> bytes:
        wanted = self._left if size is None or size < 0 else min(size, self._left)
        pieces = []
        while wanted:
            pieces.append(self.read1(wanted))
            wanted -= len(pieces[-1])
        return b"".join(pieces)


def _zip_members(file: BinaryIO, piece: Range) -> Iterator[tuple[str, Opened, int, int]]:
    try:
        archive = zipfile.ZipFile(file)
    except _ZIP_ERRORS as error:
        raise DamagedFile(
            OSError(f"{error}; an archive that was cut has lost its directory: fetch it again"), 0
        ) from error
    position = 0
    for info in archive.infolist()[piece.start : piece.stop]:
        if not info.filename.endswith("/"):
            yield info.filename, cast(Opened, partial(archive.open, info)), position, info.compress_size
        position += info.compress_size


class _Header(tarfile.TarInfo):
    """A tar header with checks; ``tarfile`` treats a truncated or damaged header as the end of the archive."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> _Header:
        header = super().frombuf(buf, encoding, errors)
        if header.size < 0 or (header.type in _NAMING and header.size > _LONGEST_NAME):
            raise tarfile.HeaderError(f"a size of {header.size:,} bytes")
        return header

    @classmethod
    def fromtarfile(cls, tarfile_: tarfile.TarFile) -> _Header:
        try:
            return super().fromtarfile(tarfile_)
        except (tarfile.EmptyHeaderError, tarfile.TruncatedHeaderError) as error:  # type: ignore[attr-defined]
            raise EOFError("the archive ends without its end mark") from error
        except tarfile.EOFHeaderError:  # type: ignore[attr-defined]
            raise  # the end mark
        except (tarfile.HeaderError, ValueError, OverflowError) as error:
            raise OSError(f"no tar header: {error}") from error


def _headers(stream: BinaryIO) -> Iterator[tuple[tarfile.TarFile, tarfile.TarInfo]]:
    """Yield the headers from the current position of ``stream``, each with the archive that opens it."""
    place = stream.tell()
    try:
        archive = tarfile.TarFile(fileobj=stream, tarinfo=_Header, errors="surrogateescape")
        while (header := archive.next()) is not None:
            yield archive, header
            if archive.offset <= place:
                raise OSError("a tar header that leads backwards")
            place = archive.offset
            archive.members = []  # type: ignore[attr-defined]  # tarfile would keep all headers in memory
    except (*STREAM_ERRORS, tarfile.TarError, ValueError, OverflowError) as error:
        raise DamagedFile(_as_end(error), place) from error


class _Forwards:
    """A decompressed stream as a file for ``tarfile``; it seeks forwards by reading."""

    def __init__(self, source: Iterator[bytes]) -> None:
        self._source, self._held, self._at = source, b"", 0

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = 0) -> int:
        while self._at < offset:
            if not self.read(min(offset - self._at, _STEP)):
                raise EOFError("the archive ends inside a member")
        if offset < self._at or whence:
            raise io.UnsupportedOperation("a compressed archive is read forwards")
        return self._at

    def read1(self, size: int) -> bytes:
        self._held = self._held or next(self._source, b"")
        data, self._held = self._held[:size], self._held[size:]
        self._at += len(data)
        return data

    def read(self, size: int) -> bytes:
        pieces = []
        while size and (piece := self.read1(size)):
            pieces.append(piece)
            size -= len(piece)
        return b"".join(pieces)
