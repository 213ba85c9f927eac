"""Plain text: a file as a document, a line as a document."""

from __future__ import annotations

import gzip

from corpora.readers import ReadOptions
from tests.corpora.readers import read_all, reasons

LINES = ReadOptions(format="lines")


def test_a_file_is_a_document_with_its_line_ends(tmp_path):
    path = tmp_path / "book.txt"
    path.write_bytes("\ufeffFirst line\r\n\r\n  Zweite Zeile: \u00e9\n".encode())
    block = read_all(path, target_bytes=5)
    assert (block.texts, block.keys) == (["First line\r\n\r\n  Zweite Zeile: \u00e9\n"], ["0"])
    (tmp_path / "book.txt.gz").write_bytes(gzip.compress(path.read_bytes()))
    assert read_all(tmp_path / "book.txt.gz") == block


def test_bad_files(tmp_path):
    contents = {"empty": b"", "blank": b" \n\t\n", "latin": b"caf\xe9", "long": b"x" * 3000}
    expected = {"empty": "empty_text", "blank": "empty_text", "latin": "invalid_utf8", "long": "too_long"}
    for name, content in contents.items():
        (tmp_path / f"{name}.txt").write_bytes(content)
        block = read_all(tmp_path / f"{name}.txt", ReadOptions(max_record_bytes=2999))
        assert reasons(block) == [("0", expected[name])]
        assert block.rejects[0].raw == content
        assert not block.texts


def test_a_file_at_the_limit_is_kept(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"x" * 3000)
    assert read_all(tmp_path / "a.txt", ReadOptions(max_record_bytes=3000)).texts == ["x" * 3000]


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
