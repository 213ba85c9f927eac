"""Rates, tenths and the memory of a job's processes."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from pipelines.engine.pace import Pace, memory_of_family, short


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_tenths_count_from_the_first_half_minute_on():
    clock = Clock()
    pace, last, lines = Pace(100, "files", clock), 0.0, []
    for clock.now in range(0, 80, 2):
        pace.received("a", int(clock.now))
        if pace.due(0.0, last):
            last = clock.now
            lines.append((int(clock.now), pace.done))
    assert lines == [(30, 30), (40, 40), (50, 50), (60, 60), (70, 70)]


def test_a_stage_that_hardly_moves_has_a_line_each_half_minute():
    clock = Clock()
    pace, last, lines = Pace(1000, "files", clock), 0.0, []
    for clock.now in range(0, 100, 5):
        pace.received("a", int(clock.now))
        if pace.due(0.0, last):
            last = clock.now
            lines.append(clock.now)
    assert lines == [30, 60, 90]


def test_what_earlier_starts_did_is_no_speed():
    clock = Clock()
    pace = Pace(100, "files", clock)
    pace.restored("old", 60)
    assert pace.values()["rate"] is None
    pace.received("a", 0)
    clock.now = 10.0
    pace.received("a", 20)
    assert (pace.done, pace.values()["rate"], pace.values()["seconds_left"]) == (80, 2.0, 10.0)


def test_the_units_of_the_first_report_took_time_before_it():
    clock = Clock()
    pace = Pace(100, "files", clock)
    clock.now = 40.0
    pace.received("a", 60, since=10.0)
    assert (pace.values()["rate"], pace.values()["seconds_left"]) == (2.0, 20.0)


def test_an_empty_stage_divides_by_nothing():
    assert Pace(0, "files", Clock()).described().startswith("0% (0 of 0 files)")


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
        pace.received(task, units)
    pace.restored("c", 10)
    assert (pace.done, pace.earlier) == (19, 10)
