from __future__ import annotations

import os
import signal

import pytest

from trainer.run import train as signals
from trainer.run.train import ECHO, Interruption


@pytest.fixture(autouse=True)
def usual_handlers():
    """A shell's background job, as a test session may be, ignores SIGINT."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def clock(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(signals.time, "monotonic", lambda: now[0])
    return now


def test_the_first_signal_is_a_wish_and_its_echo_is_the_same_one(clock):
    before = signal.getsignal(signal.SIGINT)
    with Interruption() as stop:
        assert stop.received is None
        os.kill(os.getpid(), signal.SIGTERM)
        clock[0] += ECHO / 2
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop.received == "SIGTERM"
    assert signal.getsignal(signal.SIGINT) == before


def test_a_later_signal_acts_as_ever(clock):
    with Interruption() as stop:
        os.kill(os.getpid(), signal.SIGINT)
        clock[0] += ECHO
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
        assert stop.received == "SIGINT"
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
