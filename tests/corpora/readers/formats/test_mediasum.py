"""MediaSum, and with it JSON arrays that are read record by record."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace

import pytest

from corpora.errors import FarspanError
from corpora.readers import ReadOptions
from corpora.readers.selection import check_fields
from corpora.storage import files
from tests.corpora.readers import InMemory, read_all

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
    path = tmp_path / ("news_dialogue.json.gz" if packed else "news_dialogue.json")
    data = LAYOUTS[layout].encode()
    path.write_bytes(gzip.compress(data) if packed else data)
    check_fields(str(path), files, MEDIASUM)
    block = read_all(path, ReadOptions(format="mediasum", id_field="id"), 3000)
    assert (block.texts, block.rejects) == (TEXTS, [])
    assert block.ids == [row["id"] for row in INTERVIEWS]
    for key, row in zip(block.keys, INTERVIEWS, strict=True):
        text = data[int(key) :].decode("utf-8-sig")
        assert json.JSONDecoder().raw_decode(text)[0] == row
    with pytest.raises(FarspanError, match="no field 'key'"):
        check_fields(str(path), files, ReadOptions(format="mediasum", id_field="key"))


BAD = [
    (b'{"utt": ["a"], "speaker": ["b", "c"]}', "broken_dialogue", "1 utterances of 2 speakers"),
    (b'{"utt": "a", "speaker": ["b"]}', "broken_dialogue", "'utt' is not a list of strings"),
    (b'{"utt": ["a"], "speaker": [1]}', "broken_dialogue", "'speaker' is not a list of strings"),
    (b'{"utt": ["a"]}', "missing_text", "no field 'speaker'"),
    (b'{"text": "a"}', "missing_text", "no field 'utt'; its fields: text"),
    (b'{"utt": [], "speaker": []}', "empty_text", "blank"),
    (b'{"utt": [" "], "speaker": ["A"]}', "empty_text", "blank"),
    (b'{"utt": ["caf\xe9"], "speaker": ["b"]}', "invalid_utf8", "invalid continuation byte"),
    (b'{"utt": ["\\ud83d"], "speaker": ["b"]}', "invalid_utf8", "surrogate"),
    (b'{"utt": ["a"], "speaker": ["b"] oops}', "broken_json", "delimiter"),
    (b'{"utt": ["a"}, "speaker": ["b"]]', "broken_json", "delimiter"),
    (b"7", "not_an_object", "int"),
    (b'"utt"', "not_an_object", "str"),
    (b'["utt"]', "not_an_object", "list"),
    (b"null", "not_an_object", "NoneType"),
    (b"[" * 100_000 + b"]" * 100_000, "broken_json", "recursion"),
    (b'{"utt": ["' + b"x" * 300_000 + b'"], "speaker": ["b"]}', "too_long", "more than --max-record-bytes 250,000"),
]


@pytest.mark.parametrize(("bad", "reason", "detail"), BAD, ids=[f"{case[1]}-{i}" for i, case in enumerate(BAD)])
@pytest.mark.parametrize("as_lines", [False, True])
def test_a_bad_interview_is_one_reject_and_its_neighbours_are_kept(bad, reason, detail, as_lines):
    first, last = (json.dumps(row).encode() for row in INTERVIEWS[:2])
    data = b"\n".join([first, bad, last]) if as_lines else b"[" + b", ".join([first, bad, last]) + b"]"
    block = read_all("a.json", ReadOptions(format="mediasum", max_record_bytes=250_000), files=InMemory(data))
    assert block.texts == TEXTS[:2]
    (reject,) = block.rejects
    assert (reject.key, reject.reason) == (str(data.index(bad, len(first))), reason)
    assert reject.raw == bad[: 64 << 10]
    assert detail in reject.detail


def test_the_title_of_an_interview_is_read_by_its_field():
    found = read_all("a.json", replace(MEDIASUM, title_field="title"), files=InMemory(json.dumps(INTERVIEWS).encode()))
    assert found.titles == [INTERVIEWS[0]["title"]] * 40


def test_speakers_without_a_name_and_turns_without_a_word():
    record = {"utt": ["One.", " ", "Two."], "speaker": [" ", "B", "Mr.\n C"]}
    assert read_all("a.json", MEDIASUM, files=InMemory(json.dumps([record]).encode())).texts == ["One.\nMr. C: Two."]


@pytest.mark.parametrize("keep", [0.3, 0.6, 0.999])
@pytest.mark.parametrize("packed", [False, True])
def test_whole_interviews_before_a_cut_are_kept(keep, packed):
    data = LAYOUTS["compact"].encode()
    data = gzip.compress(data[: int(len(data) * keep)]) if packed else data[: int(len(data) * keep)]
    block = read_all("a.json" + ".gz" * packed, MEDIASUM, files=InMemory(data))
    assert block.texts == TEXTS[: len(block.texts)]
    assert len(block.texts) in (int(40 * keep) - 1, int(40 * keep), 40)
    (reject,) = block.rejects
    assert (reject.reason, reject.raw[:8]) == ("truncated_file", b'{"id": "' if len(block.texts) < 40 else b"")
    assert "inside the JSON array" in reject.detail
