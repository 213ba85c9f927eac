"""SIGTERM to a process that shares a job, sent to the process of the test itself."""

from __future__ import annotations

import os
import signal
import threading
import time

import pytest

from pipelines.interrupts import Interrupts, TaskDoneElsewhere, Terminated


def terminate() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def wait() -> None:
    """Python code in which signals arrive."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        time.sleep(0.001)


def test_between_tasks_it_ends_at_once():
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(Terminated), Interrupts(60):
        terminate()
        wait()
    assert signal.getsignal(signal.SIGTERM) is before


def test_at_work_it_ends_after_the_task(capsys):
    done = []
    with Interrupts(60) as interrupts, pytest.raises(Terminated), interrupts.working(lambda: False):
        terminate()
        done.append(True)
    assert done
    assert "SIGTERM: ends after this task, at most 60 s from now" in capsys.readouterr().err


def test_after_the_time_of_grace_it_does_not_wait():
    with Interrupts(0.01) as interrupts, pytest.raises(Terminated), interrupts.working(lambda: False):
        terminate()
        wait()
        pytest.fail("the task went on")


def test_a_second_one_does_not_wait():
    with Interrupts(60) as interrupts, pytest.raises(Terminated), interrupts.working(lambda: False):
        terminate()
        terminate()
        wait()
        pytest.fail("the task went on")


def test_a_task_that_another_finished_is_given_up():
    finished = threading.Event()
    with Interrupts(60) as interrupts, pytest.raises(TaskDoneElsewhere), interrupts.working(finished.is_set):
        interrupts.look_elsewhere()
        finished.set()
        threading.Thread(target=interrupts.look_elsewhere).start()
        wait()
        pytest.fail("the task went on")


def test_without_a_task_there_is_nothing_to_give_up():
    with Interrupts(60) as interrupts:
        interrupts.look_elsewhere()
        with interrupts.working(lambda: True):
            pass
        interrupts.look_elsewhere()
