"""A job of an earlier start: attached to while it runs, refused while its workers live, forgotten when it is over."""

from __future__ import annotations

from functools import partial

import pytest

from corpora.errors import FarspanError
from pipelines.engine.beam.remote import earlier
from pipelines.engine.beam.remote.earlier import settle
from pipelines.engine.beam.remote.signs import Sign
from pipelines.engine.beam.remote.submission import Submission, read_submission
from pipelines.engine.beam.remote.watch import Silence
from pipelines.engine.beginning import begin
from pipelines.engine.options import Engine
from tests.pipelines.engine.beam.remote.services import JobService, served
from tests.pipelines.engine.test_run import job


@pytest.fixture(autouse=True)
def _quickly(monkeypatch):
    monkeypatch.setattr(earlier, "_POLL_SECONDS", 0.01)
    monkeypatch.setattr(earlier, "BEAT_SECONDS", 0.01)


@pytest.fixture
def begun(tmp_path):
    """A job that another process began."""
    begin(job(tmp_path, "one"))
    return tmp_path


def submitted(folder, **place: str) -> Submission:
    submission = Submission("PortableRunner", "a", job="7", **place)
    submission.write(str(folder))
    return submission


def test_without_a_record_there_is_nothing_to_settle(begun):
    settle(job(begun, "one"), Engine())


def test_a_job_that_runs_is_followed_to_its_end(begun, capsys):
    with served(JobService("7", asked=3)) as endpoint:
        submitted(begun, endpoint=endpoint)
        settle(job(begun, "one"), Engine())
    assert "attached to job a of PortableRunner" in capsys.readouterr().err
    assert read_submission(str(begun)) is None


def test_an_interrupted_attachment_cancels_the_job(begun, monkeypatch, capsys):
    def interrupt(seconds):
        raise KeyboardInterrupt

    service = JobService("7")
    with served(service) as endpoint:
        submitted(begun, endpoint=endpoint)
        monkeypatch.setattr(earlier.time, "sleep", interrupt)
        with pytest.raises(KeyboardInterrupt):
            settle(job(begun, "one"), Engine())
    assert service.cancelled == ["7"]
    assert "farspan: cancelled job a" in capsys.readouterr().err


@pytest.mark.parametrize("timeout", [0, 20])
def test_silent_workers_of_a_job_that_runs_have_it_cancelled_after_the_time_that_was_given(
    begun, monkeypatch, capsys, timeout
):
    """Without a time, a minute is given for the first sign; a look is taken every two seconds here."""
    service, clock, seen = JobService("7"), [0.0], []

    def pass_on(seconds: float) -> None:
        clock[0] += 2
        seen.append(clock[0])

    monkeypatch.setattr(earlier.time, "sleep", pass_on)
    monkeypatch.setattr(earlier, "Silence", partial(Silence, clock=lambda: clock[0]))
    with served(service) as endpoint:
        submitted(begun, endpoint=endpoint)
        settle(job(begun, "one"), Engine(runner="PortableRunner", worker_timeout=timeout))
    assert service.cancelled == ["7"]
    assert (timeout or 60) < seen[-1] <= (timeout or 60) + 2
    assert f"its workers have been silent for {seen[-1]:.0f} s" in capsys.readouterr().err


def test_silent_workers_of_an_engine_that_cannot_be_asked_are_over(begun, capsys):
    submission = submitted(begun, endpoint="localhost:9")
    (begun / "_work" / "w.worker").write_bytes(Sign("host:7", submission.attempt, 3, {"one": ("one", 0)}).to_json())
    settle(job(begun, "one"), Engine())
    assert "cannot be asked for its state" in capsys.readouterr().err
    assert read_submission(str(begun)) is None


def test_live_workers_of_an_engine_that_cannot_be_asked_are_refused(begun, monkeypatch):
    submission = submitted(begun)
    beats = iter(range(99))

    def beat(seconds=0.0):
        sign = Sign("host:7", submission.attempt, next(beats), {"one": ("one", 0)})
        (begun / "_work" / "w.worker").write_bytes(sign.to_json())

    beat()
    monkeypatch.setattr(earlier.time, "sleep", beat)
    with pytest.raises(FarspanError, match=r"still works here: host:7 has task one in hand\. Cancel the job on its"):
        settle(job(begun, "one"), Engine())
    assert read_submission(str(begun)) == submission


def test_another_configuration_is_refused_before_any_waiting(begun):
    with served(JobService("7")) as endpoint:
        submitted(begun, endpoint=endpoint)
        other = job(begun, "one")
        vars(other)["head"] = other.head.__class__(**{**vars(other.head), "seed": 9})
        with pytest.raises(FarspanError, match="holds a job with another configuration: seed was 0, is 9"):
            settle(other, Engine())
