"""JSON arrays that are read element by element, however they fall into chunks."""

from __future__ import annotations

import json
import random
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpora.readers import ReadOptions, json_array
from corpora.readers.selection import plan_ranges, read_records
from corpora.storage import files
from tests.corpora.readers import InMemory, read_all, reasons
from tests.corpora.readers.formats.test_mediasum import MEDIASUM, interview


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
    block = read_all("a.json", MEDIASUM, files=InMemory(data))
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
    (piece,) = plan_ranges(str(path), files, options, 1 << 30)
    tracemalloc.start()
    sizes, rejected = [], []
    for block in read_records(piece, files, options):
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
