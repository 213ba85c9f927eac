"""One job in a folder, from before it is planned until its manifest is written."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager

import pytest

from corpora.errors import FarspanError
from pipelines.engine.finalize import finalize
from pipelines.engine.lock import locked
from tests.pipelines.engine.test_job import finished


@contextmanager
def locked_elsewhere(folder: str) -> Iterator[None]:
    """Another thread holds the folder, as another process would."""
    held = ExitStack()
    with ThreadPoolExecutor(1) as thread:
        thread.submit(held.enter_context, locked(folder)).result()
        try:
            yield
        finally:
            thread.submit(held.close).result()


def test_a_folder_is_held_by_one_thread_as_often_as_it_likes(tmp_path):
    folder = str(tmp_path / "corpus")
    with locked_elsewhere(folder), pytest.raises(FarspanError, match="another farspan job works here"), locked(folder):
        pass
    with locked(folder), locked(folder + "/"), locked(folder):
        pass
    with locked(folder):
        pass


def test_what_was_made_for_the_lock_alone_is_removed(tmp_path):
    (tmp_path / "kept").mkdir()
    folder = tmp_path / "kept" / "new" / "corpus"
    with pytest.raises(ZeroDivisionError), locked(str(folder)):
        _ = 1 / 0
    assert os.listdir(tmp_path / "kept") == []
    with locked(str(folder)):
        (folder / "manifest.json").touch()
    assert (folder / "manifest.json").exists()
    (tmp_path / "empty").mkdir()
    with locked(str(tmp_path / "empty")):
        pass
    assert (tmp_path / "empty").exists()


def test_finalize_waits_for_no_other_job(tmp_path):
    finished(tmp_path)
    with locked_elsewhere(str(tmp_path)), pytest.raises(FarspanError, match="another farspan job works here"):
        finalize(str(tmp_path))
    assert not (tmp_path / "manifest.json").exists()
    finalize(str(tmp_path))
    assert (tmp_path / "manifest.json").exists()


def test_a_file_is_no_output(tmp_path):
    (tmp_path / "file").touch()
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(FarspanError, match="cannot be used as a folder"), locked(str(path)):
            pass


def test_a_second_job_is_refused_before_it_plans(tmp_path, run, monkeypatch):
    monkeypatch.setattr("pipelines.corpus.random.plan", lambda options: pytest.fail("planned"))
    command = ["corpus", "random", "--documents", tmp_path / "documents", "--sequence-length", "64"]
    with locked_elsewhere(str(tmp_path / "corpus")):
        status, _, errors = run(*command, "--output", tmp_path / "corpus")
    assert status == 1
    assert "another farspan job works here" in errors
