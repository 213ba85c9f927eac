"""Messages as text, as JSON, and suppressed by --quiet."""

from __future__ import annotations

import json

import pytest

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
