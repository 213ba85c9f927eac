"""JSON lines: every way a line can be bad, and its neighbours kept."""

from __future__ import annotations

import json

import pytest

from corpora.errors import FarspanError
from corpora.readers import ReadOptions
from corpora.readers.selection import check_fields
from corpora.storage import files
from tests.corpora.readers import read_all, reasons

BAD = [
    (b'{"text": "caf\xe9"}', "invalid_utf8", "byte 32 of the file: invalid continuation byte"),
    (b'{"text": "\xed\xa0\xbd"}', "invalid_utf8", "byte 29 of the file: invalid continuation byte"),
    (b'{"text": "a \\ud83d b"}', "invalid_utf8", r"'text' holds '\ud83d', half of a surrogate pair"),
    (b'{"text": "cut', "broken_json", "Unterminated string"),
    (b'{"text": "a"} {"text": "b"}', "broken_json", "Extra data"),
    (b"[" * 100_000, "broken_json", "recursion"),
    (b'{"text": "a", "n": ' + b"9" * 5000 + b"}", "broken_json", "4300 digits"),
    (b"\0\0\0", "broken_json", "Expecting value"),
    (b'["text"]', "not_an_object", "list"),
    (b'"text"', "not_an_object", "str"),
    (b"null", "not_an_object", "NoneType"),
    (b'{"url": "u", "n\\ud800": 1}', "missing_text", r"no field 'text'; its fields: url, n\ud800"),
    (b"{}", "missing_text", "no field 'text'"),
    (b'{"text": null}', "null_text", "null"),
    (b'{"text": ""}', "empty_text", "blank"),
    (b'{"text": " \\n\\t\\u00a0"}', "empty_text", "blank"),
    (b'{"text": 7}', "not_a_string", "int"),
    (b'{"text": {"a": "b"}}', "not_a_string", "dict"),
    (b'{"text": []}', "empty_cluster", "without texts"),
    (b'{"text": "' + b"x" * 200_000 + b'"}', "too_long", "200,012 bytes, more than --max-record-bytes 150,000"),
]
FIRST = b'{"text": "before"}'


@pytest.mark.parametrize(("line", "reason", "detail"), BAD, ids=[f"{case[1]}-{i}" for i, case in enumerate(BAD)])
@pytest.mark.parametrize("target_bytes", [1 << 30, 7000])
def test_a_bad_line_is_one_reject_and_its_neighbours_are_kept(tmp_path, line, reason, detail, target_bytes):
    path = tmp_path / "bad.jsonl"
    path.write_bytes(b"\n".join([FIRST, line, b'{"text": "after"}']) + b"\n")
    block = read_all(path, ReadOptions(max_record_bytes=150_000), target_bytes)
    assert block.texts == ["before", "after"]
    assert block.keys == ["0", str(len(FIRST) + 1 + len(line) + 1)]
    (reject,) = block.rejects
    assert (reject.path, reject.key, reject.reason) == (str(path), str(len(FIRST) + 1), reason)
    assert reject.raw == line[: 64 << 10]
    assert detail in reject.detail
    reject.detail.encode()


def test_records_as_people_write_them(tmp_path):
    path = tmp_path / "a.jsonl"
    lines = [
        b'\xef\xbb\xbf{"text": "a byte order mark"}\r\n',
        b"\r\n",
        b"\n",
        b' {"text": "NaN beside it", "score": NaN}\n',
        b" \t \n",
        '{"text": "\u2028 \\ud83d\\ude00 \x85 is one line"}\r\n'.encode(),
        b'{"text": "no final newline"}',
    ]
    path.write_bytes(b"".join(lines))
    block = read_all(path)
    assert block.texts == [
        "a byte order mark",
        "NaN beside it",
        "\u2028 \U0001f600 \x85 is one line",
        "no final newline",
    ]
    starts = [sum(map(len, lines[:i])) for i in (0, 3, 5, 6)]
    assert block.keys == [str(start) for start in starts]
    assert not block.rejects


def test_fields_of_other_names(tmp_path):
    path = tmp_path / "a.json"
    rows = [{"body": "one", "key": "k1"}, {"body": "two", "key": 2}, {"body": "three", "key": 2**70}]
    bad = [{"body": "no id"}, {"body": "x", "key": None}, {"body": "x", "key": True}, {"body": "x", "key": ""}]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows + bad))
    block = read_all(path, ReadOptions(text_field="body", id_field="key"))
    assert block.texts == ["one", "two", "three"]
    assert block.ids == ["k1", "2", str(2**70)]
    assert [reject.reason for reject in block.rejects] == ["missing_id"] * 4


def test_fields_are_checked_before_work(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text(
        '["an array"]\nbroken\n{"url": "http://example.org", "content": "a much longer text than the address"}\n'
    )
    with pytest.raises(
        FarspanError, match=r"no field 'text' in .*a\.jsonl; its fields: content, url; give --text-field content"
    ):
        check_fields(str(path), files, ReadOptions())
    with pytest.raises(FarspanError, match=r"no field 'id' .* give --id-field NAME"):
        check_fields(str(path), files, ReadOptions(text_field="content", id_field="id"))
    check_fields(str(path), files, ReadOptions(text_field="content", id_field="url"))


@pytest.mark.parametrize(
    "content",
    ['[{"text": "a"}, {"text": "b"}]', '{\n  "text": "a"\n}\n', "[\n1,\n2]", '[{"text": "' + "x" * (9 << 20) + '"}]'],
    ids=["array", "object", "lines", "long"],
)
def test_a_json_document_is_refused_with_a_cure(tmp_path, content):
    path = tmp_path / "a.json"
    path.write_text(content)
    with pytest.raises(FarspanError, match=r"one JSON document.*jq"):
        check_fields(str(path), files, ReadOptions())


@pytest.mark.parametrize("content", [b"", b"\n\n", b"broken\n", b"\xff\n"])
def test_a_file_without_a_good_record_is_left_to_the_rejects(tmp_path, content):
    path = tmp_path / "a.jsonl"
    path.write_bytes(content)
    check_fields(str(path), files, ReadOptions())
    assert len(reasons(read_all(path))) == bool(content.strip())
