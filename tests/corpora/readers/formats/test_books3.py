"""Books3: tar archives with a text a member, as published, cut, damaged and hostile; zip archives beside them."""

from __future__ import annotations

import tarfile

import pytest

from corpora.readers.selection import plan_ranges
from corpora.storage import files
from tests.corpora.readers import read_all
from tests.corpora.readers.test_archives import BOOKS, BOOKS3, PACK, special, tar


@pytest.mark.parametrize("suffix", PACK)
@pytest.mark.parametrize("format", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_each_text_is_a_record_known_by_its_path(tmp_path, suffix, format):
    path = tmp_path / f"books3{suffix}"
    others = {
        "books3": special("books3", tarfile.DIRTYPE),
        "books3/cover.jpg": b"\xff\xd8",
        "books3/._A.epub.txt": b"\0\5\x16\7",
        "__MACOSX/books3/A.txt": b"\0",
        "books3/link.txt": special("books3/link.txt", tarfile.SYMTYPE, "/etc/passwd"),
        "books3/hard.txt": special("books3/hard.txt", tarfile.LNKTYPE, next(iter(BOOKS))),
        "books3/pipe.txt": special("books3/pipe.txt", tarfile.FIFOTYPE),
    }
    path.write_bytes(PACK[suffix](tar({**others, **BOOKS}, format)))
    for target in (1, 4000, 1 << 30):
        block = read_all(path, BOOKS3, target)
        assert (block.keys, block.texts) == (list(BOOKS), list(BOOKS.values()))
        assert block.rejects == []
    assert (len(plan_ranges(str(path), files, BOOKS3, 4000)) > 3) == (suffix == ".tar")
