"""Progress without a terminal: bars in a cell, lines in a log, rates, memory; and estimates of jobs."""

import json
import os
import subprocess
import sys
import types
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from corpora.printing import format_interval
from corpora.reporting import Reporting, reporting
from corpora.storage.files import write_bytes
from corpora.storage.manifest import Manifest, Receipt
from pipelines.engine.estimate import Measured, combine, estimate
from pipelines.engine.job import Job, Stage, Task
from pipelines.engine.options import Engine
from pipelines.engine.progress import Pace, ProgressBars, memory_of_family, short
from tests.artefacts import make_corpus
from tests.clock import Clock

STAGES = [
    Stage("tokenise", [Task("a", {}, 1500), Task("b", {}, 500)], lambda task, report: Receipt(task.name), "bytes"),
    Stage("pack", [Task("p", {}, 3)], lambda task, report: Receipt(task.name), "tasks"),
]


@pytest.fixture(autouse=True)
def memory(monkeypatch):
    monkeypatch.setattr("pipelines.engine.progress.memory_of_family", lambda: 3 << 29)


def test_a_log_gets_a_line_each_half_minute(clock: Clock, capsys):
    with ProgressBars(STAGES, clock) as bars:
        for clock.now, task, done in [(29.0, "a", 500), (31.0, "a", 700), (32.0, "b", 100), (62.0, "b", 300)]:
            bars.report("tokenise", task, done)
        clock.now = 93.0
        bars.report("pack", "a", 1)
    assert capsys.readouterr() == (
        "",
        "tokenise: 35% (700 of 2,000 bytes), 22.6 bytes/s, 0:00:58 left, 1.5 GiB\n"
        "tokenise: 40% (800 of 2,000 bytes), 25 bytes/s, 0:00:48 left, 1.5 GiB\n"
        "tokenise: 50% (1,000 of 2,000 bytes), 16.1 bytes/s, 0:01:02 left, 1.5 GiB\n"
        "pack: 33% (1 of 3 tasks), 0.0323 tasks/s, 0:01:02 left, 1.5 GiB\n",
    )


def test_a_stage_that_does_not_report_has_lines_too(clock: Clock, capsys):
    """The first within two seconds, while workers start and kernels are compiled; no tenth has a second line."""
    with ProgressBars(STAGES, clock) as bars:
        for clock.now in (1.0, 2.0, 3.0, 31.0, 33.0, 40.0):
            bars._silence.look()
        bars.report("tokenise", "a", 1500)
        for clock.now in (41.0, 64.0, 100.0):
            bars._silence.look()
        bars.report("tokenise", "a", 1500)
    starting, going = "tokenise: starting, 0% (0 of 2,000 bytes), 1.5 GiB", "tokenise: 75% (1,500 of 2,000 bytes)"
    lines = capsys.readouterr().err.splitlines()
    assert lines[:2] == [starting, starting]
    assert [line[: len(going)] for line in lines[2:]] == [going] * 2


def test_a_short_job_leaves_no_line(clock: Clock, capsys):
    with ProgressBars(STAGES, clock) as bars:
        clock.now = 1.0
        bars.report("tokenise", "a", 2000)
        bars._silence.look()
    assert capsys.readouterr() == ("", "")


def test_a_notebook_gets_bars_that_are_drawn_again(clock: Clock, monkeypatch, capsys):
    drawn = []

    def display(bars, display_id):
        assert display_id is True
        drawn.append(bars._repr_mimebundle_([], [])["text/plain"])
        return types.SimpleNamespace(update=lambda bars: drawn.append(bars._repr_mimebundle_([], [])["text/plain"]))

    ipython: Any = types.ModuleType("IPython")
    ipython.display = types.ModuleType("IPython.display")
    ipython.display.display = display
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", ipython.display)
    monkeypatch.setattr("pipelines.engine.progress.Console", lambda file: Console(file=file, force_jupyter=True))
    with ProgressBars(STAGES, clock) as bars:
        for clock.now, done in [(0.1, 500), (0.3, 1000), (0.4, 2000)]:
            bars.report("tokenise", "a", done)
    percents = [[line.split("%")[0].split()[-1] for line in text.splitlines() if "%" in line] for text in drawn]
    assert percents == [["0", "0"], ["50", "0"], ["100", "0"]]
    assert capsys.readouterr() == ("", "")


def test_json_lines_and_quiet(clock: Clock, capsys):
    for options, count in ((Reporting(log_format="json"), 1), (Reporting(quiet=True), 0)):
        with reporting(options), ProgressBars(STAGES, clock) as bars:
            bars.restore(replace(STAGES[0], tasks=[Task("old", {}, 1000)]), {"old"})
            bars.report("tokenise", "a", 0)
            clock.now += 40
            bars.report("tokenise", "a", 400, 3)
        out, err = capsys.readouterr()
        lines = [json.loads(line) for line in err.splitlines()]
        assert (out, len(lines)) == ("", count)
        for line in lines:
            assert (line["event"], line["stage"], line["done"], line["rejects"]) == ("progress", "tokenise", 1400, 3)
            assert (line["rate"], line["seconds_left"]) == (10, 60)  # of what this start has done


@pytest.mark.parametrize(("total", "expected"), [(100, [30, 40, 50, 60, 70, 80, 90]), (1000, [30, 60, 90])])
def test_a_line_is_due_each_half_minute_and_from_then_on_at_each_tenth(total, expected):
    clock = Clock()
    pace, last, lines = Pace(total, "files", clock), 0.0, []
    for clock.now in range(0, 100, 5):
        pace.report("a", int(clock.now))
        if pace.due(0.0, last):
            last, pace.logged = clock.now, pace.tenths
            lines.append(clock.now)
    assert lines == expected


def test_rate_and_time_left_are_those_of_the_last_minutes():
    """A start of ten minutes, as for compilation, is soon forgotten."""
    clock = Clock()
    pace = Pace(10_000, "files", clock)
    pace.report("a", 0)
    for done in range(1, 301):
        clock.now = 600.0 + done
        pace.report("a", done)
    assert pace.rate == pytest.approx(1, rel=0.02)
    assert pace.speed() == ["1 files/s", "2:41:40 left"]


def test_a_stage_whose_units_are_read_is_finishing():
    clock = Clock()
    pace = Pace(10, "files", clock)
    pace.report("a", 0)
    clock.now = 60.0
    pace.report("a", 10)
    assert pace.speed() == ["finishing"]


def test_an_empty_stage_divides_by_nothing():
    assert Pace(0, "files", Clock()).describe().startswith("0% (0 of 0 files)")


def test_short_numbers():
    assert [short(number) for number in (0.02134, 2.134, 99.96, 2134.4)] == ["0.0213", "2.13", "100", "2,134"]


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="the system has no /proc")
def test_the_memory_of_children_counts():
    before = memory_of_family()
    program = "data = bytearray(b'x') * (64 << 20); print(flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        child.stdout.readline()
        during = memory_of_family()
        child.communicate(b"\n")
    assert during - before > 60 << 20


def test_a_process_that_is_gone_has_no_memory():
    assert memory_of_family(2**30) is None


def test_reports_of_a_task_count_once_whatever_their_order():
    pace = Pace(100, "files", Clock())
    for task, units in (("a", 3), ("b", 5), ("a", 7), ("a", 7), ("b", 2)):
        pace.report(task, units)
    pace.restore("c", 10)
    assert pace.done == 19


def measured(marks, total=1000, **more):
    return Measured("work", "rows", total, tuple(marks), **more)


@given(st.floats(0, 100), st.floats(1e-3, 10), st.integers(3, 50), st.integers(1, 1000))
def test_a_steady_stage_with_a_start_lies_within_the_doubt(start, rate, count, per_mark):
    """A start of any length, paid once, and equal units: the truth is inside, and the interval is 10 % wide."""
    marks = [(start + rate * per_mark * number, per_mark * number) for number in range(1, count + 1)]
    total = 100 * count * per_mark
    low, high = measured(marks, total).seconds()
    assert (low, high) == pytest.approx((0.9 * (start + rate * total), 1.1 * (start + rate * total)))


def test_rates_that_vary_widen_the_interval():
    low, high = measured([(1, 10), (2, 20), (5, 30), (6, 40), (9, 50)], 500).seconds()
    assert low < 0.9 * 90 < 1.1 * 90 < high
    low, high = measured([(4.0, 100)]).seconds()  # one mark: what part of it was the start is unknown
    assert (low, high) == pytest.approx((0.9 * 20, 1.1 * 40))


def test_a_stage_that_saw_a_part_of_the_data_costs_as_much_more():
    """A quarter of a bucket's data in 1 s for each bucket of 100 units is 4 s for each."""
    stage = measured([(number, 100 * number) for number in range(1, 6)], 1000, share=0.25, bytes=500)
    assert stage.seconds() == pytest.approx((0.9 * 40, 1.1 * 40))
    assert stage.whole_bytes == 4000


def test_stages_add_up_and_processes_share_them():
    stages = [measured([(1, 100), (2, 200)], bytes=10), measured([(2, 500), (4, 1000)], bytes=30)]
    one = combine(stages, (), 1, 1 << 30)
    assert one.seconds == pytest.approx((0.9 * 14, 1.1 * 14))
    assert (one.disk_bytes, one.output_bytes, one.sampled) == (50 + 30, 30, 0.2)
    two = combine(stages, ("pack",), 2, 1 << 30)
    assert two.seconds[0] < one.seconds[0] < one.seconds[1] < two.seconds[1]
    assert (two.memory_bytes, "not measured: pack" in two.describe()) == (2 << 30, True)
    assert format_interval((55.04, 100)) == "55.0 s to 0:01:40"


@dataclass(frozen=True)
class Work:
    """Each task takes a second for each of its units and writes 40 bytes for it, or as much of both as it can read."""

    clock: Clock
    reads: tuple[str, ...] = ()

    def __call__(self, task, report):
        if self.reads:
            assert all(map(os.path.exists, self.reads))
        self.clock.now += 10 if task.name.endswith("-start") else 0
        for done in range(1, task.units + 1):
            self.clock.now += len(self.reads) / 40 if self.reads else 1
            report(done)
        write_bytes(task.payload["file"], b"x" * task.units * (len(self.reads) or 40))
        return Receipt(task.name)


@pytest.mark.parametrize("seconds", [8.0, 40.0, 1000.0])
def test_a_sample_of_two_stages_estimates_the_whole_job(tmp_path, seconds):
    """The second stage reads the files of the first; the estimate is right within a quarter at each size of sample."""
    clock, output = Clock(), str(tmp_path / "job")
    spills = tuple(f"{output}/_work/spill-{number}" for number in range(40))
    first = [Task(f"spill-{number}", {"file": path}, 3) for number, path in enumerate(spills)]
    second = [Task(f"pack-{number}", {"file": f"{output}/shards/{number}"}, 5) for number in range(30)]
    stages = [Stage("spill", first, Work(clock), "rows"), Stage("pack", second, Work(clock, spills), "rows")]
    head = Manifest(format="farspan.corpus", config={}, seed=0, rows_per_batch=1, tokenizer={})
    made = estimate(Job(output, head, stages, lambda folder: None, 0), Engine(workers=1), seconds, clock)
    truth = 40 * 3 + 30 * 5
    assert made.seconds[0] < truth < made.seconds[1]
    assert made.seconds == pytest.approx((truth, truth), rel=0.25)
    assert made.output_bytes == pytest.approx(150 * 40, rel=0.3)
    assert clock.now < max(4 * seconds, truth) + 1


def test_the_command_leaves_nothing_but_a_log_and_the_job_adds_what_happened(run, tmp_path):
    corpus = make_corpus(str(tmp_path / "corpus"))
    masking = ("mask", "span", "--corpus", corpus, "--output", tmp_path / "masks")
    status, out, err = run(*masking, "--estimate")
    assert status == 0
    assert "plans the job, then does up to about 10 s of its work" in err.splitlines()[0]
    assert " in 1 process, " in out
    assert {path.name for path in tmp_path.iterdir()} == {"corpus", "masks.estimate.json"}
    assert run(*masking)[0] == 0
    log = json.loads((tmp_path / "masks.estimate.json").read_text())
    assert log["estimate"]["sampled"] == 1.0
    assert log["actual"]["seconds"] > 0
