"""Estimates of jobs: intervals from marks, stages that see a part of the data, and the log beside what happened."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpora.estimates import format_interval
from corpora.storage.files import write_bytes
from corpora.storage.manifest import Manifest, Receipt
from pipelines.engine.estimate import Measured, _existing, combine, estimate
from pipelines.engine.job import Job, Stage, Task
from pipelines.engine.options import Engine
from tests.artefacts import make_corpus


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


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
    marks = [(number, 100 * number) for number in range(1, 6)]
    stage = measured(marks, 1000, share=0.25, bytes=500)
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


def test_paths_of_other_folders_stay(tmp_path):
    (tmp_path / "there").touch()
    folder = str(tmp_path)
    value = {"a": (f"{folder}/there", f"{folder}/gone"), "b": ["/elsewhere/gone"], "c": 3}
    assert _existing(value, folder) == {**value, "a": (f"{folder}/there",)}


def test_the_command_leaves_nothing_but_a_log_and_the_job_adds_what_happened(run, tmp_path):
    corpus = make_corpus(str(tmp_path / "corpus"))
    masking = ("mask", "span", "--corpus", corpus, "--output", tmp_path / "masks")
    status, out, err = run(*masking, "--estimate")
    assert status == 0
    assert "plans the job, then does about 10 s of its work" in err.splitlines()[0]
    assert " in 1 process, " in out
    assert {path.name for path in tmp_path.iterdir()} == {"corpus", "masks.estimate.json"}
    assert run(*masking)[0] == 0
    log = json.loads((tmp_path / "masks.estimate.json").read_text())
    assert log["estimate"]["sampled"] == 1.0
    assert log["actual"]["seconds"] > 0
    assert "leave out --engine" in run(*masking, "--estimate", "--engine", "beam")[2]
