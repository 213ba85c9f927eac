"""Signs of life: written while a task is in hand, and no longer once the job is cancelled."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from corpora.errors import FarspanError
from corpora.storage import files
from pipelines.engine.beam.remote.signs import Sign, SignOfLife, read_signs, write_failure
from pipelines.engine.beam.remote.submission import Submission, forget

BEAT = 0.01


def sign_in(folder: Path) -> Sign:
    (sign,) = read_signs(files.walk(str(folder))).values()
    return sign


def wait_for(condition) -> None:
    last = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < last
        time.sleep(BEAT)


@pytest.fixture
def submission(tmp_path):
    submission = Submission("R", "a")
    submission.write(str(tmp_path))
    return submission


def test_a_task_in_hand_beats_with_its_progress(tmp_path, submission):
    sign = SignOfLife(str(tmp_path), submission.attempt, BEAT)
    with sign.working("pack", "pack-00001"):
        first = sign_in(tmp_path)  # before the work, which may keep the thread from writing
        assert (first.attempt, dict(first.tasks)) == (submission.attempt, {"pack-00001": ["pack", 0]})
        sign("pack", "pack-00001", 7)
        wait_for(lambda: sign_in(tmp_path).tasks["pack-00001"] == ["pack", 7])
        assert sign_in(tmp_path).beat > first.beat
    wait_for(lambda: not sign_in(tmp_path).tasks)
    idle = sign_in(tmp_path).beat
    time.sleep(20 * BEAT)
    assert sign_in(tmp_path).beat <= idle + 1  # an idle worker costs no requests; the task may end within a beat
    with sign.working("pack", "pack-00002"):
        wait_for(lambda: list(sign_in(tmp_path).tasks) == ["pack-00002"])


def test_a_cancelled_job_gets_no_task_and_no_sign(tmp_path, submission):
    sign = SignOfLife(str(tmp_path), submission.attempt, BEAT)
    with sign.working("pack", "pack-00001"):
        forget(str(tmp_path))
        time.sleep(20 * BEAT)
        files.delete(files.walk(str(tmp_path)))
        time.sleep(20 * BEAT)
        assert files.walk(str(tmp_path)) == []
    with pytest.raises(FarspanError, match="its workers stop"), sign.working("pack", "pack-00002"):
        raise AssertionError


def test_a_worker_says_why_it_cannot_start(tmp_path):
    write_failure(str(tmp_path), "no spaCy here")
    assert sign_in(tmp_path).failed == "no spaCy here"


def test_signs_that_cannot_be_read_are_left_out(tmp_path):
    (tmp_path / "a.worker").write_bytes(b"{")
    (tmp_path / "b.worker").write_bytes(b'{"pulse": 1}')
    assert read_signs([*files.walk(str(tmp_path)), str(tmp_path / "gone.worker")]) == {}
