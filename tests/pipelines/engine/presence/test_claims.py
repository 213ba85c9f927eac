"""Claims: one process of many gets each, on local disk and in a remote store."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpora.storage import files
from pipelines.engine.presence.claims import Claims, Owner, highest_generations, next_generation


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
    assert one.first() == {"task", "task.1"}
    one.give_back("task", 1)
    assert two.first() == {"task.1"}


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
    names = [f"{name}.{generation}" for name, generation in made]
    expected = {name: max(g for n, g in made if n == name) for name, _ in made}
    assert highest_generations([*names, "x", ".1", "y.tmp"]) == expected


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


def test_a_creation_whose_answer_was_lost_is_known_by_its_owner(folder, monkeypatch):
    """The store has made the file, and the client's second request finds it there."""
    create = files.create_new
    monkeypatch.setattr(files, "create_new", lambda path, data: create(path, data) and False)
    assert Claims(folder, "one").create("task")
    assert not Claims(folder, "two").create("task")
