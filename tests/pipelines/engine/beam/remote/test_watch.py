"""The watch over workers elsewhere, with a clock of its own."""

from __future__ import annotations

import pytest

from corpora.errors import FarspanError
from pipelines.engine.beam.remote.signs import Sign
from pipelines.engine.beam.remote.watch import Silence, Watch
from pipelines.engine.job import Task
from pipelines.engine.tasks import RunTask
from tests.pipelines.engine.test_run import job, work


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def sign(worker: str, beat: int, *tasks: str) -> Sign:
    return Sign(worker, "one", beat, dict.fromkeys(tasks, ("stage", 0)))


@pytest.fixture
def clock():
    return Clock()


def test_workers_that_never_start(clock):
    silence = Silence(60, 300, clock)
    silence.observe({}, 5)  # of an earlier start
    clock.now += 59
    assert not silence.too_long
    clock.now += 300
    assert silence.too_long


def test_a_first_sign_grants_more_time(clock):
    silence = Silence(60, 300, clock)
    silence.observe({"a": sign("a", 1)}, 0)
    clock.now += 299
    assert silence.begun
    assert not silence.too_long
    clock.now += 2
    assert silence.too_long


def test_an_idle_worker_does_not_hide_that_another_was_killed(clock):
    silence = Silence(60, 60, clock)
    silence.observe({"a": sign("a", 1, "pack-0"), "b": sign("b", 1, "pack-1")}, 0)
    for beat in range(2, 15):  # a was killed; b ends its tasks, and then has none
        clock.now += 5
        silence.observe({"a": sign("a", 1, "pack-0"), "b": sign("b", beat, *(("pack-1",) if beat < 5 else ()))}, 0)
    assert 45 <= silence.seconds <= 55
    clock.now += 15
    assert silence.too_long


def test_a_long_task_and_receipts_are_signs(clock):
    silence = Silence(60, 60, clock)
    for beat in range(1, 100):
        clock.now += 30
        silence.observe({"a": sign("a", beat, "pack-0")}, 0)
        assert not silence.too_long
    for receipts in range(1, 100):
        clock.now += 30
        silence.observe({"a": sign("a", 99, "pack-0")}, receipts)
        assert not silence.too_long


class Bars:
    def __init__(self) -> None:
        self.seen: list[tuple[str, str, int]] = []

    def received(self, *report) -> None:
        self.seen.append(report)


def watch(tmp_path, bars, clock) -> Watch:
    return Watch(job(tmp_path, "one", "two"), "one", Silence(60, 60, clock), bars)


def test_progress_comes_from_receipts_and_signs(tmp_path, clock):
    bars, place = Bars(), tmp_path / "_work"
    followed = watch(tmp_path, bars, clock)
    place.mkdir()
    (place / "one.json").write_bytes(b"{}")
    (place / "w.worker").write_bytes(Sign("w", "one", 1, {"two": ("two", 0)}).to_json())
    (place / "x.worker").write_bytes(Sign("x", "other", 1, {"two": ("two", 9)}).to_json())
    followed.look()
    assert bars.seen == [("one", "one", 1), ("two", "two", 0)]
    assert not followed.all_done
    (place / "two.json").write_bytes(b"{}")
    followed.look()
    followed.look()
    assert bars.seen[2:] == [("two", "two", 1)]
    assert followed.all_done


def fail(folder, task: str) -> None:
    """Do what a worker does with a task of ``test_job`` that fails."""
    (folder / "_work").mkdir()
    (folder / "_work" / "job.json").touch()
    with pytest.raises(FarspanError):
        RunTask(task, work, str(folder), lambda *report: None)(Task(task, {}, 1))


def test_a_task_that_its_user_must_mend_ends_the_job(tmp_path, clock):
    fail(tmp_path, "input")
    with pytest.raises(FarspanError, match="task input failed: row 3: not a number; mend it"):
        Watch(job(tmp_path, "input"), "one", Silence(60, 60, clock), Bars()).look()


def test_a_task_that_may_succeed_again_is_left_to_the_engine(tmp_path, clock):
    fail(tmp_path, "full")
    Watch(job(tmp_path, "full"), "one", Silence(60, 60, clock), Bars()).look()


def test_workers_say_why_they_do_not_start(tmp_path, clock):
    (tmp_path / "_work").mkdir()
    (tmp_path / "_work" / "w.worker").write_bytes(Sign("host:7", failed="no Beam").to_json())
    followed = watch(tmp_path, Bars(), clock)
    followed.look()
    assert followed.why_silent() == "host:7: no Beam"
    assert not followed.silence.begun
