"""Times of updates, and metrics that wait for the device."""

from __future__ import annotations

import pytest
import torch

from tests.trainer.run.test_step import batches_of, make_trainer, updated
from tests.trainer.toy import toy_recipe
from trainer.parallel import device
from trainer.run import step


@pytest.mark.parametrize("late", [False, True])
def test_an_update_has_its_own_seconds_whenever_it_is_read(monkeypatch, late):
    now = [100.0]
    monkeypatch.setattr(step.time, "perf_counter", lambda: now[0])
    trainer = make_trainer(toy_recipe("unused"))
    batches = batches_of(trainer.recipe)
    change_weights = trainer._change_weights

    def slow(*arguments):
        now[0] += 2.0 ** (trainer.step + 1)
        return change_weights(*arguments)

    monkeypatch.setattr(trainer, "_change_weights", slow)
    updates, records = [], []
    for _ in range(3):
        updates.append(trainer.update(batches))
        now[0] += 100.0  # evaluation, checkpoints
        if not late:
            records.append(trainer.record(updates[-1]))
    records = records or [trainer.record(update) for update in updates]
    assert [record["seconds"] for record in records] == [2.0, 4.0, 8.0]


class Stream:
    """An emulated device: work is queued at once and done later; whoever reads its tensors waits for all of it."""

    def __init__(self, monkeypatch):
        self.now, self.idle_at = 100.0, 0.0  # seconds of the host's clock
        stream = self

        class Event:
            def __init__(self, enable_timing):
                assert enable_timing

            def record(self):
                self.at = max(stream.now, stream.idle_at)

            def synchronize(self):
                stream.now = max(stream.now, self.at)

            def elapsed_time(self, other):
                assert stream.now >= other.at, "asked before the event had passed"
                return 1e3 * (other.at - self.at)

        item = torch.Tensor.item

        def waited_for(tensor):
            stream.now = max(stream.now, stream.idle_at)
            return item(tensor)

        monkeypatch.setattr(torch.Tensor, "item", waited_for)
        monkeypatch.setattr(torch.cuda, "Event", Event)
        monkeypatch.setattr(device, "_pinned", lambda count: torch.empty(count, dtype=torch.float64))
        monkeypatch.setattr(step, "start_timing", lambda _: device.StreamTiming())
        monkeypatch.setattr(step.time, "perf_counter", lambda: self.now)

    def queue(self, seconds):
        self.idle_at = max(self.now, self.idle_at) + seconds


def test_metrics_of_a_device_wait_for_their_own_update_alone(monkeypatch):
    stream = Stream(monkeypatch)
    trainer = make_trainer(toy_recipe("unused"))
    batches, change_weights = batches_of(trainer.recipe), trainer._change_weights

    def queued(*arguments):
        stream.queue(2.0 ** (trainer.step + 1))
        return change_weights(*arguments)

    monkeypatch.setattr(trainer, "_change_weights", queued)
    first = trainer.update(batches)
    second = trainer.update(batches)
    assert stream.now == 100.0  # the host has queued both and waited for neither
    assert trainer.record(first)["seconds"] == 2.0
    assert stream.now == 102.0  # the device is at the second update
    assert trainer.record(second)["seconds"] == 4.0  # also right after the first
    assert stream.now == 106.0
    stream.queue(50.0)  # an evaluation
    third = trainer.update(batches)
    assert trainer.record(third)["seconds"] == 8.0
    stream.now += 30.0

    class Late:
        def step(self, step):
            stream.now += 3.0
            return batches.step(step)

    assert trainer.record(trainer.update(Late()))["seconds"] == 3.0 + 16.0  # the device stood idle for want of data


def test_a_device_reports_what_a_cpu_does(monkeypatch):
    expected = updated(make_trainer(toy_recipe("unused")), 3)
    stream, trainer = Stream(monkeypatch), make_trainer(toy_recipe("unused"))
    change_weights = trainer._change_weights

    def queued(*arguments):
        stream.queue(1.0)
        return change_weights(*arguments)

    monkeypatch.setattr(trainer, "_change_weights", queued)
    found = updated(trainer, 3)
    for name in ("loss", "grad_norm", "target_tokens"):
        assert [record[name] for record in found] == [record[name] for record in expected]
