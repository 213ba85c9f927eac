"""Plain text: files, lines, stories, and archives of text or lines."""

import gzip
import hashlib
import json
import random
import tarfile
import zipfile
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpora.readers import ReadOptions
from corpora.readers.selection import check_fields, plan_ranges
from tests.corpora.readers import pack, read_all, reasons, tar, write
from tests.corpora.readers.test_archives import BOOKS, BOOKS3

# Plain text: a file as a document, a line as a document.
LINES = ReadOptions(format="lines")


def test_a_file_is_a_document_with_its_line_ends(tmp_path):
    path = tmp_path / "book.txt"
    path.write_bytes("\ufeffFirst line\r\n\r\n  Zweite Zeile: \u00e9\n".encode())
    block = read_all(path, target_bytes=5)
    assert (block.texts, block.keys) == (["First line\r\n\r\n  Zweite Zeile: \u00e9\n"], ["0"])
    (tmp_path / "book.txt.gz").write_bytes(gzip.compress(path.read_bytes()))
    assert read_all(tmp_path / "book.txt.gz") == block


@pytest.mark.parametrize(("name", "format"), [("a.text", None), ("a.md", None), ("a.rst", None), ("7.txt", "pg19")])
def test_other_names_of_plain_text(tmp_path, name, format):
    (tmp_path / name).write_text("# A *text*\n")
    assert read_all(tmp_path / name, ReadOptions(format=format)).texts == ["# A *text*\n"]


def test_bad_files(tmp_path):
    contents = {"empty": b"", "blank": b" \n\t\n", "latin": b"caf\xe9", "long": b"x" * 3000}
    expected = {"empty": "empty_text", "blank": "empty_text", "latin": "invalid_utf8", "long": "too_long"}
    for name, content in contents.items():
        (tmp_path / f"{name}.txt").write_bytes(content)
        block = read_all(tmp_path / f"{name}.txt", ReadOptions(max_record_bytes=2999))
        assert reasons(block) == [("0", expected[name])]
        assert block.rejects[0].raw == content
        assert not block.texts
    assert read_all(tmp_path / "long.txt", ReadOptions(max_record_bytes=3000)).texts == ["x" * 3000]


def test_half_a_document_is_none(tmp_path):
    packed = gzip.compress(b"one document, " * 10_000)
    (tmp_path / "a.txt.gz").write_bytes(packed[:-20])
    block = read_all(tmp_path / "a.txt.gz")
    assert reasons(block) == [("0", "truncated_file")]
    assert block.rejects[0].raw.startswith(b"one document, one")


def test_lines(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(b"\xef\xbb\xbfone\r\n\r\n two \n\xff\n" + b"x" * 99 + b"\nlast")
    block = read_all(path, ReadOptions(format="lines", max_record_bytes=98))
    assert (block.texts, block.keys) == (["one", " two ", "last"], ["0", "10", "118"])
    assert reasons(block) == [("16", "invalid_utf8"), ("18", "too_long")]
    assert block.rejects[1].raw == b"x" * 99


# Stories with a line between them.
STORIES = ReadOptions(format="stories")
MARKED = ReadOptions(format="stories", separator="<|endoftext|>")
STORIES_LINES = [b"", b" ", b"\r", b"<|endoftext|>", b" <|endoftext|>\r", b"A line.", b"caf\xc3\xa9\r", b"x" * 40]


def expected(data, separator):
    """(offset, text) of each story, from the file as a whole."""
    found, story, offset, start = [], [], 0, 0
    for line in [*data.removesuffix(b"\n").split(b"\n"), separator]:
        if line.strip() == separator:
            text = b"\n".join(story)
            if text.strip():
                found.append((str(start), text.decode()))
            story = []
        else:
            start = start if story else offset
            story.append(line)
        offset += len(line) + 1
    return found


@settings(max_examples=100, deadline=None)
@given(
    draw=st.integers(0, 1 << 32).map(random.Random),
    target=st.integers(1, 200),
    options=st.sampled_from([STORIES, MARKED]),
)
def test_ranges_together_give_each_story_once_in_order(draw, target, options):
    data = b"\n".join(draw.choices(STORIES_LINES, k=draw.randint(0, 30)))
    block = read_all("a.txt", options, target, data)
    assert list(zip(block.keys, block.texts, strict=True)) == expected(data, (options.separator or "").encode())
    assert block.rejects == []
    assert read_all("a.txt.gz", options, target, gzip.compress(data)) == read_all("a.txt", options, 1 << 30, data)


def test_stories_keep_their_blank_lines_with_a_separator_of_their_own():
    data = b"One.\n\nStill one.\n<|endoftext|>\n\n<|endoftext|>\nTwo.\n"
    assert read_all("a.txt", MARKED, data=data).texts == ["One.\n\nStill one.", "Two."]


@pytest.mark.parametrize("target", [1, 9, 1 << 30])
def test_bad_stories_are_rejects_and_their_neighbours_are_kept(target):
    parts = [b"first", b"bad \xff\nstory", b"many\n" + b"short lines\n" * 20 + b"end", b"x" * 300, b"last"]
    data = b"\n\n".join(parts)
    block = read_all("a.txt", ReadOptions(format="stories", max_record_bytes=200), target, data)
    assert block.texts == ["first", "last"]
    places = [str(data.index(part)) for part in parts]
    assert reasons(block) == list(zip(places[1:4], ["invalid_utf8", "too_long", "too_long"], strict=True))
    assert block.rejects[0].raw == parts[1]
    assert "byte 11 of the file" in block.rejects[0].detail


def test_whole_stories_before_a_cut_are_kept():
    data = b"\n\n".join(f"Story {n}\nand {n * n} words of it".encode() for n in range(2000))
    packed = gzip.compress(data, 1)
    block = read_all("a.txt.gz", STORIES, data=packed[: len(packed) // 2])
    assert len(block.texts) > 500
    assert block.texts == read_all("a.txt", STORIES, data=data).texts[: len(block.texts)]
    (reject,) = block.rejects
    assert reject.reason == "truncated_file"
    assert int(reject.key) == data.index(f"Story {len(block.texts)}\n".encode())
    assert data[int(reject.key) :].startswith(reject.raw)


# Books3: tar archives with a text a member, as published, cut, damaged and hostile; zip archives beside them.
def special(name, kind, target="") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


@pytest.mark.parametrize("suffix", [".tar", ".tgz", *(f".tar.{kind}" for kind in ("gz", "bz2", "xz", "zst"))])
@pytest.mark.parametrize("format", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_each_text_is_a_record_known_by_its_path(tmp_path, suffix, format):
    others = {
        "books3": special("books3", tarfile.DIRTYPE),
        "books3/cover.jpg": b"\xff\xd8",
        "books3/._A.epub.txt": b"\0\5\x16\7",
        "__MACOSX/books3/A.txt": b"\0",
        "books3/link.txt": special("books3/link.txt", tarfile.SYMTYPE, "/etc/passwd"),
        "books3/hard.txt": special("books3/hard.txt", tarfile.LNKTYPE, next(iter(BOOKS))),
        "books3/pipe.txt": special("books3/pipe.txt", tarfile.FIFOTYPE),
    }
    path = write(tmp_path / f"books3{suffix}", tar({**others, **BOOKS}, format))
    for target in (1, 4000, 1 << 30):
        block = read_all(path, BOOKS3, target)
        assert (block.keys, block.texts) == (list(BOOKS), list(BOOKS.values()))
        assert block.rejects == []
    assert (len(plan_ranges(str(path), BOOKS3, 4000)) > 3) == (suffix == ".tar")


# RealNews: JSON lines, as they are or in the archive that is published.
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
REALNEWS_LINES = b"".join(json.dumps(row).encode() + b"\n" for row in ROWS)


@pytest.mark.parametrize("suffix", [".tar.gz", ".tar", ".zip"])
def test_the_archive_and_its_file_hold_the_same(tmp_path, suffix):
    plain = tmp_path / "realnews.jsonl"
    plain.write_bytes(REALNEWS_LINES)
    path = pack(
        tmp_path / f"realnews{suffix}", {"realnews/README.md": "about", "realnews/realnews.jsonl": REALNEWS_LINES}
    )
    check_fields(str(plain), REALNEWS)
    check_fields(str(path), REALNEWS)
    expected = read_all(plain, REALNEWS, 1000)
    block = read_all(path, REALNEWS, 1000)
    assert block.texts == expected.texts == [row["text"] for row in ROWS]
    assert block.keys == [f"realnews/realnews.jsonl:{key}" for key in expected.keys]
    named = read_all(path, ReadOptions(format="realnews", id_field="url", title_field="title"))
    assert (named.ids, named.titles) == ([row["url"] for row in ROWS], [row["title"] for row in ROWS])


def test_a_bad_line_in_an_archive_has_its_place_and_a_cut_too(tmp_path):
    lines = REALNEWS_LINES[:1000].rpartition(b"\n")[0] + b"\nbroken\n" + REALNEWS_LINES
    data = tar({"realnews/realnews.jsonl": lines})
    block = read_all(write(tmp_path / "realnews.tar.gz", data), REALNEWS)
    assert reasons(block) == [(f"realnews/realnews.jsonl:{lines.index(b'broken')}", "broken_json")]
    assert len(block.texts) > 50
    block = read_all(write(tmp_path / "realnews.tar.gz", data[: 512 + len(REALNEWS_LINES) // 2]), REALNEWS)
    assert len(block.texts) > 10
    assert block.rejects[-1].reason == "truncated_file"
    assert block.rejects[-1].key.startswith("realnews/realnews.jsonl:")


def test_a_damaged_member_of_a_zip_costs_that_member_only(tmp_path):
    lines = b"".join(
        b'{"text": "%d %s"}\n' % (n, hashlib.sha256(b"%d" % n).hexdigest().encode() * 20) for n in range(3000)
    )
    path = pack(tmp_path / "realnews.zip", dict.fromkeys(("a.jsonl", "b.jsonl", "c.jsonl"), lines))
    damaged = zipfile.ZipFile(path).infolist()[1]
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
