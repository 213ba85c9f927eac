"""Messages of commands, values in words, and errors."""

import json
import sys
import threading
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpora.errors import FarspanError, from_extra, nearest
from corpora.printing import format_count, format_total, printable, row_numbers
from corpora.reporting import Reporting, Silence, current, note, reporting, result, tell_error


def test_the_nearest_known_word_is_suggested_or_none():
    assert nearest("densty", ["seed", "density"]) == " (did you mean 'density'?)"
    assert nearest("zzz", ["seed", "density"]) == nearest("seed", []) == ""


def tell() -> None:
    note("halfway", "progress", share=0.5)
    tell_error("broken: mend it")
    result("out: 3 rows", rows=3)


@pytest.mark.parametrize("quiet", [False, True])
def test_notes_go_to_stderr_unless_quiet(capsys, quiet):
    with reporting(Reporting(quiet=quiet)):
        tell()
    assert capsys.readouterr() == ("out: 3 rows\n", "broken: mend it\n" if quiet else "halfway\nbroken: mend it\n")


def test_json_has_a_message_and_values_a_line(capsys):
    with reporting(Reporting(log_format="json")):
        tell()
    out, err = capsys.readouterr()
    assert json.loads(out) == {"event": "result", "message": "out: 3 rows", "rows": 3}
    assert [json.loads(line) for line in err.splitlines()] == [
        {"event": "progress", "message": "halfway", "share": 0.5},
        {"event": "error", "message": "broken: mend it"},
    ]


def test_silence_is_broken_soon_and_each_half_minute(clock):
    told = []
    silence = Silence(lambda: told.append(clock.now), clock)
    for clock.now in (1.0, 2.0, 3.0, 31.0, 32.0, 40.0, 62.0):
        silence.look()
    silence.end()  # something else was printed
    for clock.now in (91.0, 92.0):
        silence.look()
    assert told == [2.0, 32.0, 62.0, 92.0]


def test_a_thread_listens_to_the_silence(monkeypatch):
    for name in ("period", "first"):
        monkeypatch.setattr(Silence, name, 0.0)
    told = threading.Event()
    with Silence(told.set):
        assert told.wait(60)


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


@given(st.text())
def test_only_tabs_and_line_feeds_are_left_of_control_characters(text):
    shown = printable(text)
    assert all(letter in "\t\n" or unicodedata.category(letter) != "Cc" for letter in shown)
    assert not any(unicodedata.bidirectional(letter) in ("RLO", "LRO", "RLE", "LRE", "RLI", "LRI") for letter in shown)


def test_by_hand():
    assert printable("a\tb\nc é 世 👩‍👧") == "a\tb\nc é 世 👩‍👧"
    assert printable("\x1b[2J\r\x9b\x00\u202e\u2066") == "\\x1b[2J\\r\\x9b\\x00\\u202e\\u2066"


def test_counts_have_their_nouns():
    assert [format_count(number, "row") for number in (0, 1, 2000)] == ["0 rows", "1 row", "2,000 rows"]
    assert [format_count(number, "epoch") for number in (0.5, 1.0, 2.5)] == ["0.5 epochs", "1 epoch", "2.5 epochs"]
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
