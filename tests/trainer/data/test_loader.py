"""Batches that threads or processes make ahead of their steps."""

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from corpora.errors import FarspanError
from trainer.data.batch import Batch, Batches
from trainer.data.loader import LoadingConfig, prefetch

NUMBERS = 7
DAMAGED, WRONG = 13, 17


class Numbered:
    """A loader whose batches say their step; two of them cannot be made. Importing it costs a process little."""

    def step(self, step: int) -> list[Batch]:
        if step == DAMAGED:
            raise FarspanError("sequence 13 is damaged; copy it again")
        if step == WRONG:
            raise KeyError("seventeen")
        ids = torch.arange(6).reshape(2, 3) + step
        numbers = np.arange(2 * step, 2 * step + 2)
        names = np.full((2, 16), step, np.uint8)
        batch = Batch(numbers, names, ids, ids > step, None if step % 2 else ids + 1, ids + 2, 6, 3)
        return [batch, batch.without_targets()]


def equal(one: Sequence[Batch], other: Sequence[Batch]) -> bool:
    def facts(batch: Batch) -> list:
        tensors = [(name, None if x is None else (x.tolist(), x.dtype)) for name, x in batch.inputs.items()]
        return [batch.samples.tolist(), batch.sequence_ids.tolist(), batch.target_tokens, tensors]

    return list(map(facts, one)) == list(map(facts, other))


@pytest.mark.parametrize("ahead", [0, 1, 3, 20])
def test_threads_change_nothing(ahead):
    with prefetch(Numbered(), LoadingConfig(ahead=ahead), NUMBERS) as batches:
        for step in (0, 1, 2, 5, 6, 1, 9):  # in order, forwards, back, beyond the run
            assert equal(batches.step(step), Numbered().step(step))


def test_every_tensor_is_pinned_where_the_device_fetches_it(monkeypatch):
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda tensor: tensor.to(torch.float64))  # to be recognised by
    with prefetch(Numbered(), LoadingConfig(), NUMBERS, pinned=True) as batches:
        found = [tensor for step in (0, 1) for batch in batches.step(step) for tensor in batch.inputs.values()]
    assert {tensor.dtype for tensor in found if tensor is not None} == {torch.float64}


def test_batches_are_made_before_they_are_asked_for_and_no_further():
    made, three_made = [], threading.Event()

    def make(step: int) -> list:
        made.append(step)
        if len(made) == 3:
            three_made.set()
        return []

    with prefetch(SimpleNamespace(step=make), LoadingConfig(ahead=2), 4) as ahead:
        ahead.step(0)
        assert three_made.wait(60)
        for step in (1, 2, 3):
            ahead.step(step)
    assert sorted(made) == [0, 1, 2, 3]
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("batches")]


def test_an_error_is_raised_at_the_step_that_needs_it():
    with prefetch(Numbered(), LoadingConfig(ahead=3), 40) as batches:
        for step in range(10, DAMAGED):
            batches.step(step)
        with pytest.raises(FarspanError, match=r"^sequence 13 is damaged; copy it again$"):
            batches.step(DAMAGED)
        for step in range(DAMAGED + 1, WRONG):
            batches.step(step)
        with pytest.raises(KeyError, match="seventeen"):
            batches.step(WRONG)


@pytest.fixture(scope="module")
def processes() -> Iterator[Batches]:
    """They take seconds to start: once for all."""
    with prefetch(Numbered(), LoadingConfig(ahead=0, processes=2), 40, reopen=Numbered) as batches:
        yield batches
        workers = multiprocessing.active_children()
    assert [worker.exitcode for worker in workers] == [0, 0]  # of their own accord


def test_processes_change_nothing_and_leave_signals_to_the_run(processes):
    for number, step in enumerate([0, 1, 2, 5, 6, 1, 50]):
        assert equal(processes.step(step), Numbered().step(step))
        for process in multiprocessing.active_children() if number == 1 else ():
            os.kill(process.pid, signal.SIGINT)
            os.kill(process.pid, signal.SIGTERM)


def test_processes_run_no_file_of_the_current_folder_and_a_dead_one_is_named(tmp_path, monkeypatch):
    for name in ("random", "socket", "pickle", "numpy"):
        (tmp_path / f"{name}.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    monkeypatch.chdir(tmp_path)
    others = multiprocessing.active_children()
    with prefetch(Numbered(), LoadingConfig(ahead=0, processes=1), NUMBERS, reopen=Numbered) as batches:
        assert equal(batches.step(0), Numbered().step(0))
        (process,) = set(multiprocessing.active_children()) - set(others)
        process.kill()
        with pytest.raises(FarspanError, match=r"ended before those of step 3 were made \(killed, perhaps because mem"):
            batches.step(2)
    assert not (tmp_path / "ran").exists()


def test_what_goes_wrong_in_a_process_is_told_at_the_step_that_needs_it(processes):
    assert equal(processes.step(DAMAGED - 1), Numbered().step(DAMAGED - 1))
    with pytest.raises(FarspanError, match=r"^sequence 13 is damaged; copy it again$"):
        processes.step(DAMAGED)
    assert equal(processes.step(WRONG - 1), Numbered().step(WRONG - 1))
    with pytest.raises(KeyError, match="seventeen") as raised:
        processes.step(WRONG)
    assert "in step" in str(raised.value.__cause__)  # the process's trace


def test_open_data_cannot_go_to_processes():
    with (
        pytest.raises(FarspanError, match=r"loading.processes is 2, but the data was passed as an open source"),
        prefetch(Numbered(), LoadingConfig(processes=2), NUMBERS),
    ):
        pass


def hold_processes(told) -> None:
    with prefetch(Numbered(), LoadingConfig(processes=1), NUMBERS, reopen=Numbered) as batches:
        batches.step(0)
        told.send(multiprocessing.active_children()[0].pid)
        time.sleep(600)


def test_processes_end_with_a_run_that_is_killed():
    fork = multiprocessing.get_context("fork")
    here, there = fork.Pipe()
    run = fork.Process(target=hold_processes, args=(there,))
    run.start()
    worker = here.recv()
    run.kill()
    run.join()
    for _ in range(300):
        if not Path(f"/proc/{worker}").exists() or "Z" in Path(f"/proc/{worker}/stat").read_text().split()[2]:
            return
        time.sleep(0.1)
    os.kill(worker, signal.SIGKILL)
    pytest.fail("the loading process outlived its run")
