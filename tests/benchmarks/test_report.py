"""Ratios, tables and files of measurements."""

from __future__ import annotations

import json

from benchmarks.report import HEADINGS, Comparison, arguments, comparison_rows, in_turn, machine, publish

TWICE = Comparison("ours", "theirs", "rows/s", [200.0, 30.0, 4000.0], [100.0, 10.0, 4000.0], goal=2)


def test_the_ratio_is_the_median_of_the_rounds():
    """Not the ratio of the medians, 200 / 100: a round in which the machine was slow counts as any other."""
    assert TWICE.ratios == [2.0, 3.0, 1.0]
    assert TWICE.ratio == 2.0
    (row,) = comparison_rows([TWICE])
    assert dict(zip(HEADINGS, row, strict=True)) == {
        "farspan": "ours",
        "peer": "theirs",
        "unit": "rows/s",
        "farspan's rate": "200",
        "peer's rate": "100",
        "ratio": "2.00x",
        "lowest..highest": "1.00..3.00",
        "goal": "2x",
    }


def test_runs_take_turns_and_the_first_round_is_not_counted():
    calls = []
    seconds = in_turn({"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}, rounds=2)
    assert calls == ["a", "b"] * 3
    assert {name: len(times) for name, times in seconds.items()} == {"a": 2, "b": 2}
    assert all(time >= 0 for times in seconds.values() for time in times)


def test_a_table_is_printed_and_what_was_measured_is_written(tmp_path, capsys):
    environment = machine("numpy")
    assert environment.keys() == {"processor", "cores", "python", "farspan", "numpy"}
    file = tmp_path / "measured.json"
    options = arguments("A benchmark.", rounds=3).parse_args(["--json", str(file)])
    assert (options.rounds, options.json) == (3, str(file))
    publish("Title", HEADINGS, comparison_rows([TWICE]), environment, options.json, {"rows": [1, 2]})
    title, headings, rule, row, versions = capsys.readouterr().out.strip().splitlines()
    assert title == "Title"
    assert headings.index("ratio") == row.index("2.00x") == rule.index("-" * 5, row.index("2.00x") - 1)
    assert f"numpy {environment['numpy']}" in versions
    assert json.loads(file.read_text()) == {"title": "Title", "environment": environment, "measured": {"rows": [1, 2]}}
