"""Stories with a line between them."""

from __future__ import annotations

import gzip
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpora.readers import ReadOptions
from tests.corpora.readers import InMemory, read_all, reasons

STORIES = ReadOptions(format="stories")
MARKED = ReadOptions(format="stories", separator="<|endoftext|>")
LINES = [b"", b" ", b"\r", b"<|endoftext|>", b" <|endoftext|>\r", b"A line.", b"caf\xc3\xa9\r", b"x" * 40]


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
    data = b"\n".join(draw.choices(LINES, k=draw.randint(0, 30)))
    block = read_all("a.txt", options, target, InMemory(data))
    assert list(zip(block.keys, block.texts, strict=True)) == expected(data, (options.separator or "").encode())
    assert block.rejects == []
    assert read_all("a.txt.gz", options, target, InMemory(gzip.compress(data))) == read_all(
        "a.txt", options, 1 << 30, InMemory(data)
    )


def test_stories_keep_their_blank_lines_with_a_separator_of_their_own():
    data = b"One.\n\nStill one.\n<|endoftext|>\n\n<|endoftext|>\nTwo.\n"
    assert read_all("a.txt", MARKED, files=InMemory(data)).texts == ["One.\n\nStill one.", "Two."]


@pytest.mark.parametrize("target", [1, 9, 1 << 30])
def test_bad_stories_are_rejects_and_their_neighbours_are_kept(target):
    parts = [b"first", b"bad \xff\nstory", b"many\n" + b"short lines\n" * 20 + b"end", b"x" * 300, b"last"]
    data = b"\n\n".join(parts)
    block = read_all("a.txt", ReadOptions(format="stories", max_record_bytes=200), target, InMemory(data))
    assert block.texts == ["first", "last"]
    places = [str(data.index(part)) for part in parts]
    assert reasons(block) == list(zip(places[1:4], ["invalid_utf8", "too_long", "too_long"], strict=True))
    assert block.rejects[0].raw == parts[1]
    assert "byte 11 of the file" in block.rejects[0].detail


def test_whole_stories_before_a_cut_are_kept():
    data = b"\n\n".join(f"Story {n}\nand {n * n} words of it".encode() for n in range(2000))
    packed = gzip.compress(data, 1)
    block = read_all("a.txt.gz", STORIES, files=InMemory(packed[: len(packed) // 2]))
    assert len(block.texts) > 500
    assert block.texts == read_all("a.txt", STORIES, files=InMemory(data)).texts[: len(block.texts)]
    (reject,) = block.rejects
    assert reject.reason == "truncated_file"
    assert int(reject.key) == data.index(f"Story {len(block.texts)}\n".encode())
    assert data[int(reject.key) :].startswith(reject.raw)
