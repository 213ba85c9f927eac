"""Reading whole files in ranges, and making archives and damage, for the tests of all formats."""

import bz2
import gzip
import io
import json
import lzma
import random
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import chdir, contextmanager
from dataclasses import asdict
from pathlib import Path

import zstandard

from corpora.readers import Range, ReadOptions, RecordBlock
from corpora.readers.selection import plan_ranges, read_records

COMPRESS = {
    "gz": lambda data: gzip.compress(data, 1),
    "tgz": lambda data: gzip.compress(data, 1),
    "bz2": lambda data: bz2.compress(data, 1),
    "xz": lambda data: lzma.compress(data, preset=0),
    "zst": lambda data: zstandard.ZstdCompressor(level=1, write_checksum=True).compress(data),
}
"""Suffix of a file's name -> compression."""


def write(path: Path, data: bytes | str) -> Path:
    """Write a file, compressed as its name says."""
    data = data.encode() if isinstance(data, str) else data
    path.write_bytes(COMPRESS.get(path.suffix[1:], bytes)(data))
    return path


def pack(path: Path, members: dict) -> Path:
    """Write texts or bytes into a zip archive, or a tar archive compressed as its name says."""
    if path.suffix != ".zip":
        return write(path, tar(members))
    path.write_bytes(zipped(members))
    return path


def zipped(members: dict) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return file.getvalue()


def tar(members: dict | list, format: int = tarfile.GNU_FORMAT) -> bytes:
    """Members are texts, bytes, or headers of other kinds."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=format, errors="surrogateescape") as archive:
        for name, content in members.items() if isinstance(members, dict) else members:
            info = content if isinstance(content, tarfile.TarInfo) else tarfile.TarInfo(name)
            data = b"" if content is info else content.encode() if isinstance(content, str) else content
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return file.getvalue()


def damaged(data: bytes, draw: random.Random) -> bytes:
    """Data of which one to four pieces are changed, cut out, put in or zeroed."""
    changed = bytearray(data)
    for _ in range(draw.randint(1, 4)):
        place = draw.randrange(len(changed))
        piece, gone = draw.choice(
            [(draw.randbytes(1), 1), (b"", draw.randint(1, 600)), (draw.randbytes(30), 0), (bytes(8), 8)]
        )
        changed[place : place + gone] = piece
        changed = changed or bytearray(b"x")
    return bytes(changed)


@contextmanager
def stored(name: str, data: bytes) -> Iterator[None]:
    """Work in a folder that has a file of this name."""
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        Path(name).write_bytes(data)
        yield


def read_all(path, options=ReadOptions(), target_bytes=1 << 30, data: bytes | None = None) -> RecordBlock:  # noqa: B008
    """All blocks of all ranges of a file as one; ``data``: its contents, if it has to be written first."""
    if data is not None:
        with stored(path, data):
            return read_all(path, options, target_bytes)
    whole = RecordBlock(ids=[] if options.id_field else None, titles=[] if options.title_field else None)
    for piece in plan_ranges(str(path), options, target_bytes):
        piece = Range(**json.loads(json.dumps(asdict(piece))))  # as a task's payload goes through JSON
        position = 0
        for block in read_records(piece, options):
            assert block.read > 0 or block.lost > 0
            assert position <= block.position <= piece.bytes
            position = block.position
            for name in ("texts", "keys", "clusters", "rejects", "ids", "titles"):
                column, more = getattr(whole, name), getattr(block, name)
                assert (column is None) == (more is None)
                assert name == "rejects" or more is None or len(more) == len(block.texts)
                if more:
                    column += more
            whole.filtered += block.filtered
            whole.damaged += block.damaged
            whole.lost += block.lost
    return whole


def reasons(block: RecordBlock) -> list[tuple[str, str]]:
    return [(reject.key, reject.reason) for reject in block.rejects]
