"""JSON lines, JSON arrays of any size, and MediaSum, which is one."""

import gzip
import json
import random
import tracemalloc
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpora.errors import FarspanError
from corpora.readers import ReadOptions, json_array
from corpora.readers.selection import check_fields, plan_ranges, read_records
from tests.corpora.readers import read_all, reasons, write

# JSON lines: every way a line can be bad, and its neighbours kept.
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
        *(b'\xef\xbb\xbf{"text": "a byte order mark"}\r\n', b"\r\n", b"\n"),
        *(b' {"text": "NaN beside it", "score": NaN}\n', b" \t \n"),
        '{"text": "\u2028 \\ud83d\\ude00 \x85 is one line"}\r\n'.encode(),
        b'{"text": "no final newline"}',
    ]
    path.write_bytes(b"".join(lines))
    block, odd = read_all(path), "\u2028 \U0001f600 \x85 is one line"
    assert block.texts == ["a byte order mark", "NaN beside it", odd, "no final newline"]
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
    record = {"url": "http://example.org", "content": "a much longer text than the address"}
    path.write_text(f'["an array"]\nbroken\n{json.dumps(record)}\n')
    with pytest.raises(FarspanError, match=r"no field 'text' in .*a\.jsonl; its fields: content, url; give --text-fie"):
        check_fields(str(path), ReadOptions())
    with pytest.raises(FarspanError, match=r"no field 'id' .* give --id-field NAME"):
        check_fields(str(path), ReadOptions(text_field="content", id_field="id"))
    check_fields(str(path), ReadOptions(text_field="content", id_field="url"))


@pytest.mark.parametrize(
    "content",
    ['[{"text": "a"}, {"text": "b"}]', '{\n  "text": "a"\n}\n', "[\n1,\n2]", '[{"text": "' + "x" * (9 << 20) + '"}]'],
    ids=["array", "object", "lines", "long"],
)
def test_a_json_document_is_refused_with_a_cure(tmp_path, content):
    path = tmp_path / "a.json"
    path.write_text(content)
    with pytest.raises(FarspanError, match=r"one JSON document.*jq"):
        check_fields(str(path), ReadOptions())


@pytest.mark.parametrize("content", [b"", b"\n\n", b"broken\n", b"\xff\n"])
def test_a_file_without_a_good_record_is_left_to_the_rejects(tmp_path, content):
    path = tmp_path / "a.jsonl"
    path.write_bytes(content)
    check_fields(str(path), ReadOptions())
    assert len(reasons(read_all(path))) == bool(content.strip())


# MediaSum, and with it JSON arrays that are read record by record.
MEDIASUM = ReadOptions(format="mediasum")


def interview(number: int, turns: int = 3) -> dict:
    return {
        "id": f"NPR-{number}",
        "program": "Day to Day",
        "date": "2008-06-10",
        "url": f"https://www.npr.org/story.php?storyId={number}",
        "title": 'A "title" with [brackets], {braces} and a \\ in it',
        "summary": "What was said.",
        "utt": [f"Utterance {turn} of {number}: “so” she said.\n And on." for turn in range(turns)],
        "speaker": [f"SPEAKER {turn % 2}, host" for turn in range(turns)],
    }


INTERVIEWS = [interview(number) for number in range(40)]
TEXTS = [
    "\n".join(f"SPEAKER {turn % 2}, host: Utterance {turn} of {n}: “so” she said. And on." for turn in range(3))
    for n in range(40)
]
LAYOUTS = {
    "compact": json.dumps(INTERVIEWS),
    "indented": "\n " + json.dumps(INTERVIEWS, indent=4, ensure_ascii=False) + "\n\n",
    "marked": "\ufeff" + json.dumps(INTERVIEWS),
    "lines": "\n".join(json.dumps(row) for row in INTERVIEWS),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("packed", [False, True])
def test_an_interview_is_a_line_for_each_turn(tmp_path, layout, packed):
    data = LAYOUTS[layout].encode()
    path = write(tmp_path / ("news_dialogue.json.gz" if packed else "news_dialogue.json"), data)
    check_fields(str(path), MEDIASUM)
    block = read_all(path, ReadOptions(format="mediasum", id_field="id"), 3000)
    assert (block.texts, block.rejects) == (TEXTS, [])
    assert block.ids == [row["id"] for row in INTERVIEWS]
    for key, row in zip(block.keys, INTERVIEWS, strict=True):
        text = data[int(key) :].decode("utf-8-sig")
        assert json.JSONDecoder().raw_decode(text)[0] == row
    with pytest.raises(FarspanError, match="no field 'key'"):
        check_fields(str(path), ReadOptions(format="mediasum", id_field="key"))


BAD_INTERVIEWS = [
    (b'{"utt": ["a"], "speaker": ["b", "c"]}', "broken_dialogue", "1 utterances of 2 speakers"),
    (b'{"utt": "a", "speaker": ["b"]}', "broken_dialogue", "'utt' is not a list of strings"),
    (b'{"utt": ["a"], "speaker": [1]}', "broken_dialogue", "'speaker' is not a list of strings"),
    (b'{"utt": ["a"]}', "missing_text", "no field 'speaker'"),
    (b'{"text": "a"}', "missing_text", "no field 'utt'; its fields: text"),
    (b'{"utt": [], "speaker": []}', "empty_text", "blank"),
    (b'{"utt": [" "], "speaker": ["A"]}', "empty_text", "blank"),
    (b'{"utt": ["\\ud83d"], "speaker": ["b"]}', "invalid_utf8", "surrogate"),
    (b'{"utt": ["a"], "speaker": ["b"] oops}', "broken_json", "delimiter"),
    (b'{"utt": ["a"}, "speaker": ["b"]]', "broken_json", "delimiter"),
    (b"7", "not_an_object", "int"),
    (b"null", "not_an_object", "NoneType"),
    (b"[" * 100_000 + b"]" * 100_000, "broken_json", "recursion"),
    (b'{"utt": ["' + b"x" * 300_000 + b'"], "speaker": ["b"]}', "too_long", "more than --max-record-bytes 250,000"),
]


@pytest.mark.parametrize(
    ("bad", "reason", "detail"), BAD_INTERVIEWS, ids=[f"{case[1]}-{i}" for i, case in enumerate(BAD_INTERVIEWS)]
)
@pytest.mark.parametrize("as_lines", [False, True])
def test_a_bad_interview_is_one_reject_and_its_neighbours_are_kept(bad, reason, detail, as_lines):
    first, last = (json.dumps(row).encode() for row in INTERVIEWS[:2])
    data = b"\n".join([first, bad, last]) if as_lines else b"[" + b", ".join([first, bad, last]) + b"]"
    block = read_all("a.json", ReadOptions(format="mediasum", max_record_bytes=250_000), data=data)
    assert block.texts == TEXTS[:2]
    (reject,) = block.rejects
    assert (reject.key, reject.reason) == (str(data.index(bad, len(first))), reason)
    assert reject.raw == bad[: 64 << 10]
    assert detail in reject.detail


def test_the_title_of_an_interview_is_read_by_its_field():
    found = read_all("a.json", replace(MEDIASUM, title_field="title"), data=json.dumps(INTERVIEWS).encode())
    assert found.titles == [INTERVIEWS[0]["title"]] * 40


def test_speakers_without_a_name_and_turns_without_a_word():
    record = {"utt": ["One.", " ", "Two."], "speaker": [" ", "B", "Mr.\n C"]}
    assert read_all("a.json", MEDIASUM, data=json.dumps([record]).encode()).texts == ["One.\nMr. C: Two."]


@pytest.mark.parametrize("keep", [0.3, 0.6, 0.999])
@pytest.mark.parametrize("packed", [False, True])
def test_whole_interviews_before_a_cut_are_kept(keep, packed):
    data = LAYOUTS["compact"].encode()
    data = gzip.compress(data[: int(len(data) * keep)]) if packed else data[: int(len(data) * keep)]
    block = read_all("a.json" + ".gz" * packed, MEDIASUM, data=data)
    assert block.texts == TEXTS[: len(block.texts)]
    assert len(block.texts) in (int(40 * keep) - 1, int(40 * keep), 40)
    (reject,) = block.rejects
    assert (reject.reason, reject.raw[:8]) == ("truncated_file", b'{"id": "' if len(block.texts) < 40 else b"")
    assert "inside the JSON array" in reject.detail


# JSON arrays that are read element by element, however they fall into chunks.
@pytest.mark.parametrize(
    ("data", "texts", "rejected"),
    [
        (b"[]", 0, []),
        (b" [ ] ", 0, []),
        (b"[,]", 0, []),
        (b"", 0, []),
        (b"[", 0, ["truncated_file"]),
        (b"[}", 0, []),
        (b"[1] more", 0, ["not_an_object", "unreadable_file"]),
        (b"[1]]", 0, ["not_an_object", "unreadable_file"]),
        (b'["', 0, ["truncated_file"]),
        (b'["\\', 0, ["truncated_file"]),
    ],
)
def test_the_edges_of_arrays(data, texts, rejected):
    block = read_all("a.json", MEDIASUM, data=data)
    assert (len(block.texts), [reason for _, reason in reasons(block)]) == (texts, rejected)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text('a"\\[]{},:\né', max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text('k"}', max_size=2), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=100, deadline=None)
@given(values=st.lists(JSON, max_size=6), step=st.integers(1, 9), indent=st.sampled_from([None, 1]))
def test_every_element_is_found_however_the_stream_falls_into_chunks(values, step, indent):
    data = json.dumps(values, indent=indent, ensure_ascii=False).encode()
    scan = json_array._Scan(1 << 20)
    found = [line for start in range(0, len(data), step) for line in scan.feed(data[start : start + step])]
    assert [json.loads(line.data) for line in found] == values
    assert all(data[line.offset :].startswith(line.data) and line.size == len(line.data) for line in found)
    assert scan.depth == 0
    assert scan.behind is None


def test_a_large_array_is_read_in_little_memory(tmp_path):
    path = tmp_path / "a.json"
    draw = random.Random(0)
    with open(path, "w") as file:
        file.write("[")
        for number in range(120):
            record = interview(number, 2)
            record["utt"][0] = "".join(draw.choices("abc ", k=100)) * (1000 if number != 60 else 50_000)
            file.write((", " if number else "") + json.dumps(record))
        file.write("]")
    options = ReadOptions(format="mediasum", max_record_bytes=1 << 20)
    (piece,) = plan_ranges(str(path), options, 1 << 30)
    tracemalloc.start()
    sizes, rejected = [], []
    for block in read_records(piece, options):
        sizes.append(sum(map(len, block.texts)))
        rejected += reasons(block)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert sum(sizes) > 119 * 90_000
    assert max(sizes) <= 9 << 20
    assert [reason for _, reason in rejected] == ["too_long"]
    assert peak < 32 << 20


def test_what_looks_like_an_array_but_is_lines(tmp_path):
    for content, array in [
        (b'[{"a": 1}]\n[{"a": 2}]\n', False),
        (b'[{"a": 1},\n{"a": 2}]', True),
        (b'[{"a": 1}]', True),
        (b'{"a": 1}\n[1]', False),
        (b"\xef\xbb\xbf\n [", True),
        (b"", False),
    ]:
        (tmp_path / "a").write_bytes(content)
        with open(tmp_path / "a", "rb") as file:
            assert json_array.is_array(file, "a") == array
            assert file.tell() == 0
