"""Tests of processes, devices and the errors that all report."""

import os
import signal
import time
from datetime import timedelta
from functools import partial

import numpy as np
import pytest
import torch
import torch.distributed as dist

from corpora.errors import FarspanError, is_reporter, mark_raised_alike
from pipelines import cli
from tests.trainer.distributed_ranks import free_port, on_ranks, start_ranks
from trainer.parallel import distributed
from trainer.parallel.device import measure_tflops, memory_capacity, memory_in_use, peak_tflops
from trainer.parallel.distributed import PATIENCE, World, _device, explain_lost_processes, on_every_rank, run_together


def test_one_process_needs_no_backend():
    world = World.alone()
    assert (world.rank, world.size, world.first, world.device.type) == (0, 1, True, "cpu")
    assert world.sum(2, 0.5) == (2, 0.5)
    assert world.gather(["a"]) == [["a"]]
    assert world.sum_on_device(torch.tensor(3.0)).item() == 3.0
    world.barrier()
    world.close()
    assert World.from_environment("cpu", {}) == world


def _agree(world: World) -> object:
    world.barrier()
    summed = world.sum(world.rank + 1, 0.1 * world.rank, 2**30 + 1)
    on_device = world.sum_on_device(torch.tensor([float(world.rank)])).tolist()
    return summed, on_device, world.gather({"rank": world.rank, "ids": ["é" * world.rank]}), world.first


def test_ranks_agree_on_sums_and_values():
    found = on_ranks(3, _agree)
    assert found[0][0] == (6, pytest.approx(0.3), 3 * 2**30 + 3)  # tokens of a step are counted to the last one
    assert [part[:3] for part in found] == [found[0][:3]] * 3
    assert found[0][1] == [3.0]
    assert found[0][2] == [{"rank": rank, "ids": ["é" * rank]} for rank in range(3)]
    assert [part[3] for part in found] == [True, False, False]


def test_a_process_that_nobody_joins_says_so(monkeypatch):
    monkeypatch.setattr(distributed, "_START_TIMEOUT", timedelta(seconds=1))
    environment = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1"}
    environment["MASTER_PORT"] = str(free_port())
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(FarspanError, match=r"rank 0 of 2 found no others at 127.0.0.1:\d+ .*start all 2 processes"):
        World.from_environment("cpu")


def _patience(world: World) -> list[timedelta]:
    groups = (dist.group.WORLD, world.control)
    return [group._get_backend(torch.device("cpu")).options._timeout for group in groups]


def test_ranks_wait_for_one_that_compiles_longer_than_for_one_that_never_came():
    assert on_ranks(2, _patience) == [[PATIENCE] * 2] * 2


def _lose(world: World) -> str:
    world.barrier()
    if world.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        with explain_lost_processes(world):
            while True:
                world.sum(1.0)
                time.sleep(0.01)
    except FarspanError as error:
        return str(error)


def test_a_killed_rank_is_noticed_by_all_others_within_seconds():
    begin = time.monotonic()
    processes, results = start_ranks(3, _lose)
    said = sorted(results.get() for _ in range(2))
    assert time.monotonic() - begin < 120  # long before anything times out
    for process in processes:
        process.join(5)
        process.kill()
    for rank, (number, message, _) in zip((0, 2), said, strict=True):
        assert number == rank
        assert message.startswith(f"rank {rank} of 3 lost another process of the run")


def test_errors_of_other_kinds_stay_what_they_are():
    with pytest.raises(RuntimeError, match="out of memory"), explain_lost_processes(World.alone()):
        raise RuntimeError("out of memory")


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({"WORLD_SIZE": "two"}, "WORLD_SIZE is 'two'"),
        ({"WORLD_SIZE": "0", "RANK": "0"}, "WORLD_SIZE is 0 and RANK 0; start with torchrun, or set both"),
        ({"RANK": "1"}, "WORLD_SIZE is not set and RANK 1; start with torchrun, or set both"),
        ({"WORLD_SIZE": "2"}, "RANK, LOCAL_RANK, MASTER_ADDR, MASTER_PORT are not set; start with torchrun"),
        (
            {"WORLD_SIZE": "2", "RANK": "2", "LOCAL_RANK": "0", "MASTER_ADDR": "x", "MASTER_PORT": "1"},
            "RANK is 2 with WORLD_SIZE 2",
        ),
    ],
)
def test_an_environment_that_makes_no_sense_is_refused(environment, said):
    with pytest.raises(FarspanError, match=said):
        World.from_environment("cpu", environment)


def test_each_process_of_a_machine_takes_its_own_device(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert [_device(name, 1) for name in ("auto", "cuda", "cpu")] == [torch.device("cuda", 1)] * 2 + [
        torch.device("cpu")
    ]
    with pytest.raises(FarspanError, match="process 2 of this machine finds 2 CUDA devices"):
        _device("cuda", 2)


@pytest.mark.skipif(torch.cuda.is_available(), reason="asks for a device that is there")
def test_a_device_that_is_not_there_is_refused():
    with pytest.raises(FarspanError, match="finds no CUDA device"):
        World.from_environment("cuda", {})


def _work_together(world: World) -> list[object]:
    def fail(error: Exception) -> list[object]:
        if world.rank == 1:
            raise error
        return []

    results: list[object] = [run_together(world, lambda: {"rank": world.rank})]
    for error in (FarspanError("refused"), OSError("disk full")):
        try:
            run_together(world, partial(fail, error))
        except (FarspanError, OSError) as raised:
            results.append((type(raised).__name__, str(raised), is_reporter(raised)))
    return results


def test_an_error_on_one_rank_is_raised_on_all():
    """And reported by rank 0, although rank 1 had it."""
    ranks = [{"rank": 0}, {"rank": 1}]
    assert on_ranks(2, _work_together) == [
        [ranks, ("FarspanError", "refused", first), ("OSError", "disk full", first)] for first in (True, False)
    ]
    assert run_together(World.alone(), lambda: 5) == [5]


def test_an_error_of_this_rank_keeps_its_cause():
    def work() -> object:
        raise FarspanError("refused") from KeyError("cause")

    with pytest.raises(FarspanError, match="refused") as raised:
        on_every_rank(World.alone(), work)
    assert isinstance(raised.value.__cause__, KeyError)


def test_every_rank_gets_its_own_result_which_need_not_be_json():
    made = object()
    assert on_every_rank(World.alone(), lambda: made) is made


CPU = torch.device("cpu")


def test_a_peak_is_given_measured_or_unknown():
    assert peak_tflops(123.0, CPU, "bf16") == 123.0
    assert peak_tflops(None, CPU, "fp32") is None
    measured = peak_tflops("measure", CPU, "fp32")
    assert measured is not None
    assert 1e-3 < measured < 1e3


def test_a_product_of_n_rows_is_two_times_n_cubed_operations(monkeypatch):
    clock = iter(range(1000))
    monkeypatch.setattr(time, "perf_counter", lambda: next(clock))
    assert measure_tflops(CPU, torch.float32) == 2 * 1024**3 / 1e12  # in one second


def test_measuring_draws_none_of_the_runs_numbers():
    before = torch.get_rng_state()
    measure_tflops(CPU, torch.float32, rounds=1)
    assert torch.equal(torch.get_rng_state(), before)


def test_memory_in_use_grows_with_what_is_held():
    before = memory_in_use(CPU)
    held = np.ones(2**25)  # 256 MiB
    assert 0.9 * held.nbytes < memory_in_use(CPU) - before < 1.2 * held.nbytes
    assert memory_in_use(CPU) < memory_capacity(CPU)


def raised(alike: bool) -> FarspanError:
    try:
        if alike:
            with mark_raised_alike():
                raise FarspanError("x")
        raise FarspanError("x")
    except FarspanError as error:
        return error


@pytest.mark.parametrize(
    ("alike", "environment", "reported"),
    [
        (True, {}, True),
        (True, {"RANK": "0", "LOCAL_RANK": "0"}, True),
        (True, {"RANK": "1", "LOCAL_RANK": "1"}, False),
        (True, {"RANK": "8", "LOCAL_RANK": "0"}, True),  # another machine, with a disk of its own
        (False, {"RANK": "1", "LOCAL_RANK": "1"}, True),
    ],
)
def test_the_first_process_of_a_machine_reports_for_all(alike, environment, reported):
    assert is_reporter(raised(alike), environment) == reported


def command(arguments):
    with pytest.raises(SystemExit) as ended:
        cli.main(["train", *arguments])
    return ended.value.code


@pytest.mark.parametrize("words", [["tine"], ["tiny", "--set", "run.stepz=1"], ["tiny", "--fast"]])
def test_under_torchrun_a_wrong_command_is_one_line(monkeypatch, capsys, words):
    """Every process ends with the same status; only the first one says why."""
    monkeypatch.setattr(cli, "leave", lambda status: (_ for _ in ()).throw(SystemExit(status)))
    said = []
    for rank in ("0", "1"):
        for name in ("RANK", "LOCAL_RANK"):
            monkeypatch.setenv(name, rank)
        assert command(words) == 1
        said.append(capsys.readouterr().err.splitlines())
    assert [len(lines) for lines in said] == [1, 0]
