"""The processes that work in a folder: their names, and what each sees of the others, by a clock of the test."""

import os
import subprocess
import sys
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpora.storage import files
from pipelines.engine.job import processes_folder
from pipelines.engine.members import DRIVER, LAUNCHER, Identity, Member, _start_of
from tests.clock import Clock

LEASE = 3600.0  # no beat comes by itself during a test


@pytest.fixture(params=["disk", "memory"])
def folder(request, tmp_path):
    return str(tmp_path) if request.param == "disk" else "memory://bucket/out"


@pytest.fixture
def member(folder, clock):
    """Makes members of one folder, which count as processes of other machines."""
    made = []

    def make(name: str, own: Clock | None = None) -> Member:
        one = Member(folder, Identity(LAUNCHER, name, 1, 0, name, LEASE, name), clock=own or clock)
        made.append(one)
        return one.__enter__()

    yield make
    for one in made:
        one.__exit__(None, None, None)


def test_members_see_each_other(member):
    a, b = member("a"), member("b")
    assert [other.host for other in b.others(LAUNCHER)] == ["a"]
    assert [other.host for other in a.others(LAUNCHER)] == ["b"]
    assert a.others("driver") == []


def test_one_past_its_lease_is_dead_until_it_gives_a_sign(member, clock):
    a, b = member("a"), member("b")
    name = b.identity.name
    assert not a.dead(name)
    clock.now += LEASE - 1
    assert not a.dead(name)
    clock.now += 1
    assert a.dead(name)
    assert not a.beats(name)
    b.beat()
    assert not a.dead(name)
    assert a.beats(name)
    clock.now += LEASE
    assert a.dead(name)


@pytest.mark.parametrize("boot", [5e6, -3e3])
def test_clocks_of_machines_and_of_files_decide_nothing(member, clock, folder, boot):
    """A process whose clock differs, and whose files look an hour old or come from the future."""
    other = Clock()
    other.now = boot
    a, b = member("a"), member("b", other)
    for second in range(0, 3 * int(LEASE), 600):
        clock.now, other.now = clock.now + 600, other.now + 600
        b.beat()
        if files.is_local(folder):
            os.utime(f"{processes_folder(folder)}/{b.identity.name}", (second, 4e9 - second))
        assert not a.dead(b.identity.name)


def test_one_that_disappeared_is_dead_after_a_lease(member, clock, folder):
    a, c = member("a"), member("c")
    assert not a.dead(c.identity.name)
    c.__exit__()
    assert not a.dead(c.identity.name), "its file may only be invisible here for a while"
    clock.now += LEASE
    assert a.dead(c.identity.name)
    assert not any(c.identity.name in path for path in files.walk(folder))


def test_a_sign_that_was_deleted_is_not_made_again(member, folder):
    a = member("a")
    files.delete(files.walk(folder))
    a.beat()
    assert a.gone
    assert files.walk(folder) == []


def test_the_first_failure_is_that_of_all(member):
    a, b, c = member("a"), member("b"), member("c")
    b.fail(b"task 7: the disk is full")
    c.fail(b"task 8: the same")
    assert a.failure is None
    a.look_for_failure()
    assert a.failure == "task 7: the disk is full"


def test_a_beat_and_a_look_cost_the_same_beside_any_number_of_processes(member, monkeypatch):
    asked: Counter[str] = Counter()
    members = [member(f"m{number}") for number in range(30)]
    for name in ("exists", "read_bytes", "write_bytes", "renew", "names", "walk"):
        monkeypatch.setattr(files, name, count(asked, name, getattr(files, name)))
    members[0].beat()
    members[0].look_for_failure()
    members[0].dead(members[1].identity.name)
    assert asked == {"renew": 1, "exists": 1, "read_bytes": 1}


def count(asked, name, function):
    def format_count(*arguments):
        asked[name] += 1
        return function(*arguments)

    return format_count


words = st.text("abcXYZ019._-", min_size=1, max_size=12)


@given(
    st.builds(
        Identity,
        kind=st.sampled_from([DRIVER, LAUNCHER]),
        host=words,
        pid=st.integers(1, 1 << 22),
        started=st.integers(0, 1 << 40),
        machine=words,
        lease=st.sampled_from([0.5, 1.0, 60.0, 3600.0]),
        nonce=st.text("0123456789abcdef", min_size=8, max_size=8),
    )
)
def test_a_name_says_all(identity):
    assert Identity.parse(identity.name) == identity
    assert os.path.basename(identity.name) == identity.name
    assert Identity.parse(f"{identity.name}.idle") is None


@pytest.mark.parametrize("name", ["", "driver", "driver~host~1~2~m~60", "driver~host~one~2~m~60~n", "a~b~1~2~c~d~e"])
def test_other_names_are_none(name):
    assert Identity.parse(name) is None


def test_this_process_lives_and_each_identity_is_another():
    own = Identity.own(DRIVER, 60)
    assert (own.pid, own.started) == (os.getpid(), _start_of(os.getpid()))
    assert not own.killed()
    assert own.nonce != Identity.own(DRIVER, 60).nonce
    assert str(own) == f"process {os.getpid()} on {own.host}"
    assert replace(own, started=own.started - 1).killed(), "its number belongs to another process now"
    assert not replace(own, started=own.started - 1, machine="elsewhere").killed()
    assert not replace(own, started=0).killed(), "it could not tell its start"


def test_a_process_that_ended_was_killed():
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    identity = replace(Identity.own(LAUNCHER, 60), pid=child.pid, started=_start_of(child.pid))
    assert not identity.killed()
    child.stdin.close()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # it ends, and nobody asks for its status
    assert identity.killed()
    child.wait()
    assert identity.killed()
