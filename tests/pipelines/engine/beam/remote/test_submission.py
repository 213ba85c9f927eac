"""The record of a submitted job."""

from __future__ import annotations

from dataclasses import replace

import pytest

from corpora.errors import FarspanError
from pipelines.engine.beam.remote.submission import Submission, forget, read_submission, require_current


def test_a_record_is_read_as_it_was_written(tmp_path):
    output = str(tmp_path)
    assert read_submission(output) is None
    submission = Submission("FlinkRunner", "farspan-x", flink="http://localhost:8081")
    submission.write(output)
    assert read_submission(output) == submission
    assert str(submission) == "job farspan-x of FlinkRunner at http://localhost:8081"
    replace(submission, job="7").write(output)
    assert read_submission(output).job == "7"


def test_workers_of_another_attempt_stop(tmp_path):
    output = str(tmp_path)
    first, second = Submission("R", "a"), Submission("R", "b")
    first.write(output)
    require_current(output, first.attempt)
    second.write(output)
    with pytest.raises(FarspanError, match="was cancelled, or begun again; its workers stop"):
        require_current(output, first.attempt)
    forget(output)
    with pytest.raises(FarspanError, match="its workers stop"):
        require_current(output, second.attempt)


@pytest.mark.parametrize("damage", [b"{", b"[]", b'{"runner": "R"}'])
def test_a_damaged_record_is_named(tmp_path, damage):
    Submission("R", "a").write(str(tmp_path))
    (tmp_path / "_work" / "submitted.json").write_bytes(damage)
    with pytest.raises(FarspanError, match=r"_work/submitted\.json: does not say which engine works here"):
        read_submission(str(tmp_path))
