"""Messages: progress and results, errors of the operating system, and text safe for a terminal."""

from __future__ import annotations

import json
import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpora.errors import FarspanError, from_extra
from corpora.printing import format_count, format_total, printable, row_numbers
from corpora.reporting import Reporting, current, note, reporting, result, tell_error


def tell() -> None:
    note("halfway", "progress", share=0.5)
    tell_error("broken: mend it")
    result("out: 3 rows", rows=3)


def test_text(capsys):
    tell()
    assert capsys.readouterr() == ("out: 3 rows\n", "halfway\nbroken: mend it\n")


def test_quiet_leaves_results_and_errors(capsys):
    with reporting(Reporting(quiet=True)):
        tell()
    assert capsys.readouterr() == ("out: 3 rows\n", "broken: mend it\n")


def test_json_has_a_message_and_values_a_line(capsys):
    with reporting(Reporting(log_format="json")):
        tell()
    out, err = capsys.readouterr()
    assert json.loads(out) == {"event": "result", "message": "out: 3 rows", "rows": 3}
    assert [json.loads(line) for line in err.splitlines()] == [
        {"event": "progress", "message": "halfway", "share": 0.5},
        {"event": "error", "message": "broken: mend it"},
    ]


def test_the_choice_ends_with_its_block():
    with pytest.raises(ZeroDivisionError), reporting(Reporting(quiet=True)):
        raise ZeroDivisionError
    assert current() == Reporting()


def test_a_missing_library_names_the_extra_that_brings_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "faiss", None)
    with (
        pytest.raises(FarspanError, match=r"^k-means needs faiss: pip install 'farspan\[linked\]'$"),
        from_extra("linked", "k-means"),
    ):
        import faiss  # noqa: F401


def test_a_library_that_is_there_is_imported():
    with from_extra("linked", "k-means"):
        import json.decoder as imported
    assert imported is sys.modules["json.decoder"]


@given(st.text())
def test_only_tabs_and_line_feeds_are_left_of_control_characters(text):
    shown = printable(text)
    assert all(letter in "\t\n" or unicodedata.category(letter) != "Cc" for letter in shown)
    assert not any(unicodedata.bidirectional(letter) in ("RLO", "LRO", "RLE", "LRE", "RLI", "LRI") for letter in shown)


def test_by_hand():
    assert printable("a\tb\nc é 世 👩‍👧") == "a\tb\nc é 世 👩‍👧"
    assert printable("\x1b[2J\r\x9b\x00\u202e\u2066") == "\\x1b[2J\\r\\x9b\\x00\\u202e\\u2066"


def test_a_count_of_one_has_a_singular_noun():
    assert [format_count(number, "row") for number in (0, 1, 2000)] == ["0 rows", "1 row", "2,000 rows"]
    assert [format_count(number, "epoch") for number in (0.5, 1.0, 2.5)] == ["0.5 epochs", "1 epoch", "2.5 epochs"]


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
    assert (format_total(1, name), format_total(3000, name)) == (one, several)
