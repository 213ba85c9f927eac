"""The start of a job in its folder: new, resumed, finished, and folders of other jobs, which are refused."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from corpora.errors import FarspanError
from pipelines.engine.beginning import begin, check_output, require_begun
from pipelines.engine.finalize import finalize
from tests.pipelines.engine.test_run import finished, job


def test_a_folder_must_be_empty_or_an_artefact(tmp_path):
    check_output(str(tmp_path / "none"))
    check_output(str(tmp_path))
    (tmp_path / "mine.txt").write_text("x")
    with pytest.raises(FarspanError, match="not empty and no farspan artefact; give --output a new or empty folder"):
        begin(job(tmp_path, "one"))
    (tmp_path / "manifest.json").write_text("{}")
    check_output(str(tmp_path))


def test_a_job_is_begun_once_and_then_resumed(tmp_path, capsys):
    two = job(tmp_path, "one", "two")
    assert begin(two) == set()
    written = json.loads((tmp_path / "_work" / "job.json").read_text())
    assert written["tasks"] == ["one", "two"]
    assert capsys.readouterr().err == ""
    (tmp_path / "_work" / "one.json").write_text("{}")
    (tmp_path / "_work" / "two.failed").write_text("why")
    assert begin(two) == {"one"}
    assert capsys.readouterr().err == "resuming: 1 of 2 tasks are done\n"
    assert not (tmp_path / "_work" / "two.failed").exists()


def test_another_configuration_is_refused_with_what_changed(tmp_path):
    one = job(tmp_path, "one")
    begin(one)
    other = replace(one, head=replace(one.head, seed=9, config={"split": "held-out"}))
    with pytest.raises(FarspanError, match=r"config\.split was 'train', is 'held-out'; seed was 0, is 9\. Give --ou"):
        begin(other)
    pears = replace(one, head=replace(one.head, format="farspan.vectors"))
    with pytest.raises(FarspanError, match=r"holds farspan\.neighbours, not farspan\.vectors; give --output another"):
        begin(pears)


def test_a_finished_job_is_not_begun_again(tmp_path):
    finished(tmp_path)
    require_begun(str(tmp_path))
    finalize(str(tmp_path))
    assert begin(job(tmp_path)) is None
    with pytest.raises(FarspanError, match="another job finished this artefact meanwhile"):
        require_begun(str(tmp_path))
    (tmp_path / "manifest.json").unlink()
    with pytest.raises(FarspanError, match="was deleted while the job ran"):
        require_begun(str(tmp_path))
