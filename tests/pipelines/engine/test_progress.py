"""Progress without a terminal: bars in a notebook's cell, lines in a log."""

import json
import socket
import sys
import types
from dataclasses import replace

import pytest
from rich.console import Console

from corpora.reporting import Reporting, reporting
from corpora.storage.manifest import Receipt
from pipelines.engine.job import Stage, Task
from pipelines.engine.progress import ProgressBars, Reporter

STAGES = [
    Stage("tokenise", [Task("a", {}, 1500), Task("b", {}, 500)], lambda task, report: Receipt(task.name), "bytes"),
    Stage("pack", [Task("p", {}, 3)], lambda task, report: Receipt(task.name), "tasks"),
]


class Clock:
    """Seconds that pass when a test says so."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(autouse=True)
def memory(monkeypatch):
    monkeypatch.setattr("pipelines.engine.pace.memory_of_family", lambda: 3 << 29)


def test_a_log_gets_a_line_each_half_minute(clock: Clock, capsys):
    with ProgressBars(STAGES, clock) as bars:
        for clock.now, task, done in [(29.0, "a", 500), (31.0, "a", 700), (32.0, "b", 100), (62.0, "b", 300)]:
            bars.received("tokenise", task, done)
        clock.now = 93.0
        bars.received("pack", "a", 1)
    assert capsys.readouterr() == (
        "",
        "tokenise: 35% (700 of 2,000 bytes), 22.6 bytes/s, 0:00:58 left, 1.5 GiB\n"
        "tokenise: 40% (800 of 2,000 bytes), 25 bytes/s, 0:00:48 left, 1.5 GiB\n"
        "tokenise: 50% (1,000 of 2,000 bytes), 16.1 bytes/s, 0:01:02 left, 1.5 GiB\n"
        "pack: 33% (1 of 3 tasks), 0.0323 tasks/s, 0:01:02 left, 1.5 GiB\n",
    )


def test_a_short_job_leaves_no_line(clock: Clock, capsys):
    with ProgressBars(STAGES, clock) as bars:
        bars.received("tokenise", "a", 2000)
    assert capsys.readouterr() == ("", "")


def test_reports_of_workers_arrive(clock: Clock, monkeypatch):
    found = []
    monkeypatch.setattr(ProgressBars, "received", lambda bars, *report: found.append(report))
    with ProgressBars(STAGES, clock) as bars:
        bars.reporter("tokenise", "a", 700)
        for _ in range(1000):
            if found:
                break
            bars._thread.join(0.01)
    assert found == [("tokenise", "a", 700, 0)]


def test_a_report_that_cannot_be_sent_costs_nothing(monkeypatch):
    def refuse(*arguments):
        raise OSError("no sockets here")

    monkeypatch.setattr(socket, "socket", refuse)
    Reporter(1)("tokenise", "a", 700)


def test_a_notebook_gets_bars_that_are_drawn_again(clock: Clock, monkeypatch, capsys):
    drawn = []

    def display(bars, display_id):
        assert display_id is True
        drawn.append(bars._repr_mimebundle_([], [])["text/plain"])
        return types.SimpleNamespace(update=lambda bars: drawn.append(bars._repr_mimebundle_([], [])["text/plain"]))

    ipython = types.ModuleType("IPython")
    ipython.display = types.ModuleType("IPython.display")
    ipython.display.display = display
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", ipython.display)
    monkeypatch.setattr("pipelines.engine.progress.Console", lambda file: Console(file=file, force_jupyter=True))
    with ProgressBars(STAGES, clock) as bars:
        for clock.now, done in [(0.1, 500), (0.3, 1000), (0.4, 2000)]:
            bars.received("tokenise", "a", done)
    percents = [[line.split("%")[0].split()[-1] for line in text.splitlines() if "%" in line] for text in drawn]
    assert percents == [["0", "0"], ["50", "0"], ["100", "0"]]
    assert capsys.readouterr() == ("", "")


def test_json_lines_and_quiet(clock: Clock, capsys):
    for options, count in ((Reporting(log_format="json"), 1), (Reporting(quiet=True), 0)):
        with reporting(options), ProgressBars(STAGES, clock) as bars:
            bars.restore(replace(STAGES[0], tasks=[Task("old", {}, 1000)]), {"old"})
            bars.received("tokenise", "a", 0)
            clock.now += 40
            bars.received("tokenise", "a", 400, 3)
        out, err = capsys.readouterr()
        lines = [json.loads(line) for line in err.splitlines()]
        assert (out, len(lines)) == ("", count)
        for line in lines:
            assert (line["event"], line["stage"], line["done"], line["rejects"]) == ("progress", "tokenise", 1400, 3)
            assert (line["rate"], line["seconds_left"]) == (10, 60)  # of what this start has done
