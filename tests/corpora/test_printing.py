from __future__ import annotations

import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from corpora.printing import printable


@given(st.text())
def test_only_tabs_and_line_feeds_are_left_of_control_characters(text):
    shown = printable(text)
    assert all(letter in "\t\n" or unicodedata.category(letter) != "Cc" for letter in shown)
    assert not any(unicodedata.bidirectional(letter) in ("RLO", "LRO", "RLE", "LRE", "RLI", "LRI") for letter in shown)


def test_by_hand():
    assert printable("a\tb\nc é 世 👩‍👧") == "a\tb\nc é 世 👩‍👧"
    assert printable("\x1b[2J\r\x9b\x00\u202e\u2066") == "\\x1b[2J\\r\\x9b\\x00\\u202e\\u2066"
