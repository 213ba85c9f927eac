"""One job in a folder, and claims of its tasks: one process of many gets each, on local disk and in a remote store."""

import os
import subprocess
import threading
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpora.errors import FarspanError
from corpora.storage import files
from corpora.storage.files import write_bytes
from corpora.storage.stores.client_errors import Unsupported
from pipelines.engine.claims import Claims, Owner, create_folder, lock_folder, next_generation, pause_after, shuffle
from pipelines.engine.folder import finalize
from pipelines.engine.job import Task, claims_folder, processes_folder
from pipelines.engine.members import DRIVER, Identity, Member
from tests.pipelines.engine.test_run import finished


@contextmanager
def locked_elsewhere(folder: str) -> Iterator[None]:
    """Another thread holds the folder, as another process would."""
    held = ExitStack()
    with ThreadPoolExecutor(1) as thread:
        thread.submit(held.enter_context, lock_folder(folder)).result()
        try:
            yield
        finally:
            thread.submit(held.close).result()


def test_a_folder_is_held_by_one_thread_as_often_as_it_likes(tmp_path):
    folder = str(tmp_path / "corpus")
    with (
        locked_elsewhere(folder),
        pytest.raises(FarspanError, match="another farspan job works here"),
        lock_folder(folder),
    ):
        pass
    with lock_folder(folder), lock_folder(folder + "/"), lock_folder(folder):
        pass
    with lock_folder(folder):
        pass


def test_what_was_made_for_the_lock_alone_is_removed(tmp_path):
    (tmp_path / "kept").mkdir()
    folder = tmp_path / "kept" / "new" / "corpus"
    with pytest.raises(ZeroDivisionError), lock_folder(str(folder)):
        _ = 1 / 0
    assert os.listdir(tmp_path / "kept") == []
    with lock_folder(str(folder)):
        (folder / "manifest.json").touch()
    assert (folder / "manifest.json").exists()
    (tmp_path / "empty").mkdir()
    with lock_folder(str(tmp_path / "empty")):
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
        with pytest.raises(FarspanError, match="cannot be used as a folder"), lock_folder(str(path)):
            pass


@pytest.mark.parametrize("hold", [lock_folder, create_folder])
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
        thread.submit(held.enter_context, lock_folder(shared_folder, lease=1)).result()
    told = rf"another farspan job works here \(process {os.getpid()} on n2\)"
    with pytest.raises(FarspanError, match=told), lock_folder(shared_folder, lease=1):
        pass
    held.close()
    with lock_folder(shared_folder, lease=1):
        pass
    assert files.walk(shared_folder) == []


def test_a_dead_machines_lock_ends_with_its_lease(shared_folder, other_machine, capsys):
    with other_machine():
        dead = Member(shared_folder, Identity.own(DRIVER, 1)).__enter__()
        assert Claims(claims_folder(shared_folder), dead.identity.name).create("lock")
        dead._stop.set()  # no sign of life any more
    start = time.monotonic()
    with lock_folder(shared_folder, lease=1):
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
    with lock_folder(shared_folder):
        pass


def test_a_listing_from_before_another_process_took_over_gives_no_lock(shared_folder, monkeypatch):
    """The claim of a dead process is gone, and its successor's is not listed yet."""
    successor = Member(shared_folder, Identity.own(DRIVER, 60)).__enter__()
    assert Claims(claims_folder(shared_folder), successor.identity.name).create("lock", 2)
    generations, stale = Claims.generations, iter([{"lock": 1}])
    monkeypatch.setattr(Claims, "generations", lambda claims: next(stale, None) or generations(claims))
    with pytest.raises(FarspanError, match="another farspan job works here"), lock_folder(shared_folder):
        pass
    assert Claims(claims_folder(shared_folder), "").generations() == {"lock": 2}
    successor.__exit__()


def test_nothing_is_written_into_a_finished_artefact(tmp_path):
    (tmp_path / "manifest.json").touch()
    before = tmp_path.stat().st_mtime_ns
    with lock_folder(str(tmp_path)), lock_folder(str(tmp_path)):
        assert os.listdir(tmp_path) == ["manifest.json"]
    assert tmp_path.stat().st_mtime_ns == before


def test_a_store_without_exclusive_creation_has_no_lock(monkeypatch):
    monkeypatch.setattr(files, "create_new", Mock(side_effect=Unsupported("no")))
    with lock_folder("memory://bucket/corpus"):
        assert len(files.walk("memory://bucket/corpus")) == 1
    assert files.walk("memory://bucket/corpus") == []


@pytest.fixture(params=["disk", "memory"])
def folder(request, tmp_path):
    if request.param == "disk":
        os.mkdir(tmp_path / "claims")
        return str(tmp_path / "claims")
    return "memory://bucket/claims"


def test_each_claim_has_one_owner(folder):
    barrier, names = threading.Barrier(8), [f"task-{number:03d}" for number in range(40)]

    def take(owner: str) -> set[str]:
        claims = Claims(folder, owner)
        barrier.wait()
        return {name for name in names if claims.create(name)}

    with ThreadPoolExecutor(8) as pool:
        taken = list(pool.map(take, map(str, range(8))))
    assert sorted(name for names in taken for name in names) == names
    for owner, mine in enumerate(taken):
        for name in mine:
            assert Claims(folder, "?").owner_of(name, 1) == Owner(str(owner))
    assert Claims(folder, "?").generations() == dict.fromkeys(names, 1)


def test_a_claim_that_was_given_back_is_free(folder):
    one, two = Claims(folder, "one"), Claims(folder, "two")
    assert one.create("task")
    assert not two.create("task")
    one.give_back("task", 1)
    assert two.owner_of("task", 1) is None
    assert two.create("task")
    assert one.owner_of("task", 1) == Owner("two")
    assert one.create("task", 2)
    assert two.generations() == {"task": 2}
    assert one.create("task.1")
    assert one.generations() == {"task": 2, "task.1": 1}
    one.give_back("task", 1)
    assert two.generations() == {"task": 2, "task.1": 1}


def test_an_owner_killed_before_it_wrote_its_name_has_a_name_that_no_process_has(tmp_path):
    (tmp_path / "task.1").touch()
    (tmp_path / "other.1").touch()
    claims = Claims(str(tmp_path), "one")
    assert not claims.create("task")
    assert claims.owner_of("task", 1) not in (Owner(""), None, claims.owner_of("other", 1))


def test_a_folder_that_is_gone_is_not_made_again(tmp_path):
    with pytest.raises(FileNotFoundError):
        Claims(str(tmp_path / "gone"), "one").create("task")
    assert Claims(str(tmp_path / "gone"), "one").generations() == {}


@given(st.lists(st.tuples(st.sampled_from(["a", "b-1", "c_2"]), st.integers(1, 12))))
def test_the_highest_generation_counts(made):
    folder = f"memory://{uuid.uuid4().hex}"
    for name in [*(f"{name}.{generation}" for name, generation in made), "x", ".1", "y.tmp"]:
        write_bytes(f"{folder}/{name}", b"")
    expected = {name: max(g for n, g in made if n == name) for name, _ in made}
    assert Claims(folder, "one").generations() == expected


@pytest.mark.parametrize(
    ("generation", "owner", "dead", "following"),
    [(0, None, False, 1), (1, None, False, 1), (3, None, True, 3), (1, "p", False, None), (1, "p", True, 2),
     (3, "p", True, 4), (2, "p\nno room", False, 3)],
)  # fmt: skip
def test_a_claim_passes_on_when_given_back_or_when_its_owner_failed_or_is_dead(generation, owner, dead, following):
    assert next_generation(generation, Owner(*owner.split("\n")) if owner else None, dead) == following


def test_a_failed_claim_says_why(folder):
    one, two = Claims(folder, "one"), Claims(folder, "two")
    assert one.create("task")
    one.fail("task", 1, b"task failed: no room\nhere")
    assert two.owner_of("task", 1) == Owner("one", "task failed: no room\nhere")
    assert not one.create("task"), "its own failed claim is no success"


def test_large_tasks_come_first_and_equal_ones_in_an_order_of_each_process():
    sizes = [3, 1000, 10, 1000, 50_000, 0, 980, 1, 1010]
    tasks = [Task(f"task-{index}", {}, size) for index, size in enumerate(sizes)]
    for process in ("one", "two"):
        ordered = [task.units for task in shuffle(tasks, process)]
        assert sorted(ordered[1:5]) == [980, 1000, 1000, 1010]
        assert [ordered[0], *ordered[5:]] == [50_000, 10, 3, 1, 0]
    many = [Task(f"task-{index:03d}", {}, 7) for index in range(100)]
    orders = [[task.name for task in shuffle(many, process)] for process in ("one", "two")]
    assert sorted(orders[0]) == sorted(orders[1])
    assert sum(a == b for a, b in zip(*orders, strict=True)) < 10
    assert shuffle(reversed(many), "one") == shuffle(many, "one")


def test_looks_become_rarer_the_longer_one_waits():
    waited, looks = 0.0, 0
    while waited < 3600:
        waited += pause_after(waited, 0.05)
        looks += 1
    assert looks < 400
    assert (pause_after(waited, 0.05), pause_after(0, 0.5)) == (10.0, 0.5)
