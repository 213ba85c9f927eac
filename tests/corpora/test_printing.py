from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpora.printing import counted, printable, row_numbers, total


@given(st.text())
def test_only_tabs_and_line_feeds_are_left_of_control_characters(text):
    shown = printable(text)
    assert all(letter in "\t\n" or unicodedata.category(letter) != "Cc" for letter in shown)
    assert not any(unicodedata.bidirectional(letter) in ("RLO", "LRO", "RLE", "LRE", "RLI", "LRI") for letter in shown)


def test_by_hand():
    assert printable("a\tb\nc é 世 👩‍👧") == "a\tb\nc é 世 👩‍👧"
    assert printable("\x1b[2J\r\x9b\x00\u202e\u2066") == "\\x1b[2J\\r\\x9b\\x00\\u202e\\u2066"


def test_a_count_of_one_has_a_singular_noun():
    assert [counted(number, "row") for number in (0, 1, 2000)] == ["0 rows", "1 row", "2,000 rows"]
    assert [counted(number, "epoch") for number in (0.5, 1.0, 2.5)] == ["0.5 epochs", "1 epoch", "2.5 epochs"]


def test_numbers_of_rows():
    assert [row_numbers(rows) for rows in (0, 1, 10)] == ["no rows", "rows 0 to 0", "rows 0 to 9"]


@pytest.mark.parametrize(
    ("name", "one", "several"),
    [
        ("documents", "1 document", "3,000 documents"),
        ("max_tokens", "1 token", "3,000 tokens"),
        ("max_source_length", "1 source position", "3,000 source positions"),
        ("held_out_documents", "1 held-out document", "3,000 held-out documents"),
        ("documents_searched_exactly", "1 document searched exactly", "3,000 documents searched exactly"),
        ("padding", "1 position of padding", "3,000 positions of padding"),
    ],
)
def test_a_total_of_one_has_a_singular_noun(name, one, several):
    assert (total(1, name), total(3000, name)) == (one, several)
