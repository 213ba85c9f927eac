"""One job in a folder, from before it is planned until its manifest is written."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace

import pytest

from corpora.errors import FarspanError
from corpora.storage import files
from corpora.storage.files import write_bytes
from corpora.storage.stores.client_errors import Unsupported
from pipelines.engine.claims import Claims
from pipelines.engine.folder import finalize
from pipelines.engine.lock import locked, opened
from pipelines.engine.members import DRIVER, Identity, Member
from pipelines.engine.paths import claims_folder, processes_folder
from tests.pipelines.engine.test_run import finished


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


@pytest.mark.parametrize("hold", [locked, opened])
def test_the_address_of_a_local_folder_is_refused(tmp_path, hold):
    told = f"--output file://{tmp_path}: give the path, {tmp_path}$"
    with pytest.raises(FarspanError, match=told), hold(f"file://{tmp_path}"):
        pass


def test_a_second_job_is_refused_before_it_plans(tmp_path, run, monkeypatch):
    monkeypatch.setattr("pipelines.corpus.random.plan", lambda options: pytest.fail("planned"))
    command = ["corpus", "random", "--documents", tmp_path / "documents", "--sequence-length", "64"]
    with locked_elsewhere(str(tmp_path / "corpus")):
        status, _, errors = run(*command, "--output", tmp_path / "corpus")
    assert status == 1
    assert "another farspan job works here" in errors


@pytest.fixture
def other_machine(monkeypatch):
    """Locks taken inside are those of a process of the same number on a machine called n2."""

    @contextmanager
    def inside() -> Iterator[None]:
        with monkeypatch.context() as patch:
            patch.setattr("pipelines.engine.members._machine", lambda: "0123456789ab")
            patch.setattr("socket.gethostname", lambda: "n2")
            yield

    return inside


@pytest.fixture(params=["disk", "memory"])
def shared_folder(request, tmp_path):
    """A folder that both machines see."""
    return str(tmp_path / "corpus") if request.param == "disk" else "memory://bucket/corpus"


def test_two_machines_refuse_one_another_by_name(shared_folder, other_machine):
    with other_machine(), ThreadPoolExecutor(1) as thread:
        held = ExitStack()
        thread.submit(held.enter_context, locked(shared_folder, lease=1)).result()
    told = rf"another farspan job works here \(process {os.getpid()} on n2\)"
    with pytest.raises(FarspanError, match=told), locked(shared_folder, lease=1):
        pass
    held.close()
    with locked(shared_folder, lease=1):
        pass
    assert files.walk(shared_folder) == []


def test_a_dead_machines_lock_ends_with_its_lease(shared_folder, other_machine, capsys):
    with other_machine():
        dead = Member(shared_folder, Identity.own(DRIVER, 1)).__enter__()
        assert Claims(claims_folder(shared_folder), dead.identity.name).create("lock")
        dead._stop.set()  # no sign of life any more
    start = time.monotonic()
    with locked(shared_folder, lease=1):
        assert time.monotonic() - start > 0.4
        assert Claims(claims_folder(shared_folder), "").generations() == {"lock": 2}
        assert f"to see whether process {os.getpid()} on n2 still works there" in capsys.readouterr().err


def test_a_killed_process_of_this_machine_is_dead_at_once(shared_folder):
    """Its lease of an hour is not waited for."""
    ended = subprocess.Popen(["true"])
    ended.wait()
    name = replace(Identity.own(DRIVER, 3600), pid=ended.pid, started=1).name
    write_bytes(f"{processes_folder(shared_folder)}/{name}", name.encode())
    write_bytes(f"{claims_folder(shared_folder)}/lock.1", name.encode())
    with locked(shared_folder):
        pass


def test_a_listing_from_before_another_process_took_over_gives_no_lock(shared_folder, monkeypatch):
    """The claim of a dead process is gone, and its successor's is not listed yet."""
    successor = Member(shared_folder, Identity.own(DRIVER, 60)).__enter__()
    assert Claims(claims_folder(shared_folder), successor.identity.name).create("lock", 2)
    generations, stale = Claims.generations, iter([{"lock": 1}])
    monkeypatch.setattr(Claims, "generations", lambda claims: next(stale, None) or generations(claims))
    with pytest.raises(FarspanError, match="another farspan job works here"), locked(shared_folder):
        pass
    assert Claims(claims_folder(shared_folder), "").generations() == {"lock": 2}
    successor.disappear()


def test_nothing_is_written_into_a_finished_artefact(tmp_path):
    (tmp_path / "manifest.json").touch()
    before = tmp_path.stat().st_mtime_ns
    with locked(str(tmp_path)), locked(str(tmp_path)):
        assert os.listdir(tmp_path) == ["manifest.json"]
    assert tmp_path.stat().st_mtime_ns == before


def test_a_store_without_exclusive_creation_has_no_lock(monkeypatch):
    def refuse(*_):
        raise Unsupported("no")

    monkeypatch.setattr(files, "create_new", refuse)
    with locked("memory://bucket/corpus"):
        assert len(files.walk("memory://bucket/corpus")) == 1
    assert files.walk("memory://bucket/corpus") == []
