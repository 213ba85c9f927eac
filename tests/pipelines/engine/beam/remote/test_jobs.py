"""The state and the cancellation of a job on an engine, by its record."""

from __future__ import annotations

import pytest

from pipelines.engine.beam.remote import jobs
from pipelines.engine.beam.remote.jobs import cancel, is_running
from pipelines.engine.beam.remote.submission import Submission, read_submission
from tests.pipelines.engine.beam.remote.services import JobService, served


def test_a_job_service_is_asked_for_its_job():
    with served(JobService("7")) as endpoint:
        assert is_running(Submission("PortableRunner", "a", job="7", endpoint=endpoint)) is True
        assert is_running(Submission("PortableRunner", "a", job="8", endpoint=endpoint)) is None  # it was restarted
    assert is_running(Submission("PortableRunner", "a", job="7", endpoint="localhost:9")) is None
    assert is_running(Submission("DataflowRunner", "a", job="7")) is None


class Cluster:
    """A Flink cluster with one job, which ends when it was asked to twice."""

    def __init__(self, address: str) -> None:
        self.address = address

    def state(self, name: str) -> str:
        return "RUNNING" if Cluster.left else "CANCELED"

    def cancel(self, name: str) -> None:
        Cluster.left -= 1


def test_flink_is_asked_until_the_job_has_ended(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(jobs, "Flink", Cluster)
    monkeypatch.setattr(jobs.time, "sleep", lambda seconds: None)
    Cluster.left = 2
    submission = Submission("FlinkRunner", "a", flink="http://flink")
    submission.write(str(tmp_path))
    assert is_running(submission)
    cancel(str(tmp_path), submission)
    assert is_running(submission) is False
    assert read_submission(str(tmp_path)) is None
    assert capsys.readouterr().err == "farspan: cancelled job a of FlinkRunner at http://flink\n"


def test_a_job_service_cancels(tmp_path):
    service = JobService("7")
    with served(service) as endpoint:
        cancel(str(tmp_path), Submission("PortableRunner", "a", job="7", endpoint=endpoint))
    assert service.cancelled == ["7"]


@pytest.mark.parametrize(
    "submission",
    [Submission("DataflowRunner", "a", job="7"), Submission("FlinkRunner", "a", flink="http://localhost:9")],
)
def test_what_cannot_be_cancelled_is_said_and_stays_recorded(tmp_path, capsys, submission):
    submission.write(str(tmp_path))
    cancel(str(tmp_path), submission)
    assert "farspan: cannot cancel job a of" in capsys.readouterr().err
    assert read_submission(str(tmp_path)) == submission
