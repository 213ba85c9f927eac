from __future__ import annotations

import numpy as np
import torch

from trainer.parallel import device
from trainer.parallel.device import measure_tflops, memory_capacity, memory_in_use, peak_tflops

CPU = torch.device("cpu")


def test_a_peak_is_given_measured_or_unknown():
    assert peak_tflops(123.0, CPU, "bf16") == 123.0
    assert peak_tflops(None, CPU, "fp32") is None
    measured = peak_tflops("measure", CPU, "fp32")
    assert measured is not None
    assert 1e-3 < measured < 1e3


def test_a_product_of_n_rows_is_two_times_n_cubed_operations(monkeypatch):
    clock = iter(range(1000))
    monkeypatch.setattr(device.time, "perf_counter", lambda: next(clock))
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
