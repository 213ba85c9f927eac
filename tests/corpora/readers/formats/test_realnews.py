"""RealNews: JSON lines, as they are or in the archive that is published."""

from __future__ import annotations

import gzip
import hashlib
import json
import zipfile
from collections import Counter

import pytest

from corpora.errors import FarspanError
from corpora.readers import ReadOptions
from corpora.readers.selection import check_fields
from corpora.storage import files
from tests.corpora.readers import read_all, reasons
from tests.corpora.readers.test_archives import tar

REALNEWS = ReadOptions(format="realnews")
ROWS = [
    {
        "url": f"https://www.example.com/{n}",
        "url_used": f"https://web.archive.org/{n}",
        "title": f"Title {n}",
        "text": f"Article {n} in full.\nIts second paragraph.",
        "summary": "",
        "authors": ["A. Writer"],
        "publish_date": "04-27-2019",
        "domain": "example.com",
        "warc_date": "2019-04-27T00:00:00Z",
        "status": "success",
        "split": "train",
    }
    for n in range(50)
]
LINES = b"".join(json.dumps(row).encode() + b"\n" for row in ROWS)


@pytest.mark.parametrize("suffix", [".tar.gz", ".tar", ".zip"])
def test_the_archive_and_its_file_hold_the_same(tmp_path, suffix):
    plain = tmp_path / "realnews.jsonl"
    plain.write_bytes(LINES)
    path = tmp_path / f"realnews{suffix}"
    if suffix == ".zip":
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("realnews/realnews.jsonl", LINES)
    else:
        data = tar({"realnews/README.md": "about", "realnews/realnews.jsonl": LINES})
        path.write_bytes(gzip.compress(data) if suffix == ".tar.gz" else data)
    check_fields(str(plain), files, REALNEWS)
    check_fields(str(path), files, REALNEWS)
    expected = read_all(plain, REALNEWS, 1000)
    block = read_all(path, REALNEWS, 1000)
    assert block.texts == expected.texts == [row["text"] for row in ROWS]
    assert block.keys == [f"realnews/realnews.jsonl:{key}" for key in expected.keys]
    named = read_all(path, ReadOptions(format="realnews", id_field="url", title_field="title"))
    assert (named.ids, named.titles) == ([row["url"] for row in ROWS], [row["title"] for row in ROWS])


def test_a_bad_line_in_an_archive_has_its_place_and_a_cut_too(tmp_path):
    path = tmp_path / "realnews.tar.gz"
    lines = LINES[:1000].rpartition(b"\n")[0] + b"\nbroken\n" + LINES
    data = tar({"realnews/realnews.jsonl": lines})
    path.write_bytes(gzip.compress(data))
    block = read_all(path, REALNEWS)
    assert reasons(block) == [(f"realnews/realnews.jsonl:{lines.index(b'broken')}", "broken_json")]
    assert len(block.texts) > 50
    path.write_bytes(gzip.compress(data[: 512 + len(LINES) // 2]))
    block = read_all(path, REALNEWS)
    assert len(block.texts) > 10
    assert block.rejects[-1].reason == "truncated_file"
    assert block.rejects[-1].key.startswith("realnews/realnews.jsonl:")


def test_a_damaged_member_of_a_zip_costs_that_member_only(tmp_path):
    path = tmp_path / "realnews.zip"
    lines = b"".join(
        b'{"text": "%d %s"}\n' % (n, hashlib.sha256(b"%d" % n).hexdigest().encode() * 20) for n in range(3000)
    )
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in ("a.jsonl", "b.jsonl", "c.jsonl"):
            archive.writestr(name, lines)
        damaged = archive.infolist()[1]
    data = bytearray(path.read_bytes())
    place = damaged.header_offset + damaged.compress_size * 9 // 10
    data[place : place + 20] = bytes(20)
    path.write_bytes(data)
    block = read_all(path, REALNEWS)
    members = Counter(key.partition(":")[0] for key in block.keys)
    assert members["a.jsonl"] == members["c.jsonl"] == 3000
    assert members["b.jsonl"] == 0  # its checksum refutes it, and not where
    assert block.rejects[-1].reason == "unreadable_file"
    assert block.rejects[-1].key == "b.jsonl"
    assert (block.damaged, block.lost) == (1, damaged.compress_size)


def test_fields_are_checked(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"body": "text"}\n')
    with pytest.raises(FarspanError, match=r"no field 'text'.*give --text-field body"):
        check_fields(str(tmp_path / "a.jsonl"), files, REALNEWS)
