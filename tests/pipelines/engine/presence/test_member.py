"""Processes that work in a folder together: what each sees of the others, by a clock of the test."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pipelines.engine.paths import processes_folder
from pipelines.engine.presence.identity import LAUNCHER, Identity
from pipelines.engine.presence.member import FAILED, IDLE, Member

LEASE = 3600.0  # no beat comes by itself during a test


class Clock:
    """Seconds that pass when the test says so, for processes and for the times of their files."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def member(tmp_path, clock):
    """Makes members of one folder, which count as processes of other machines."""
    made = []

    def make(name: str) -> Member:
        identity = Identity(LAUNCHER, name, 1, 0, name, LEASE, name)
        one = Member(str(tmp_path), identity, clock=clock)
        made.append(one)
        return one.__enter__()

    yield make
    for one in made:
        one.__exit__(None, None, None)


def names(identities: list[Identity]) -> list[str]:
    return [identity.host for identity in identities]


def test_members_see_each_other_and_who_is_idle(member):
    a, b = member("a"), member("b")
    assert names(b.others(LAUNCHER)) == ["a"]
    assert names(a.others(LAUNCHER)) == []
    a.look()
    assert names(a.others(LAUNCHER)) == ["b"]
    assert a.others("driver") == []
    b.mark(IDLE)
    a.look()
    assert (names(a.others(LAUNCHER)), names(a.busy(LAUNCHER))) == (["b"], [])
    b.unmark(IDLE)
    a.look()
    assert names(a.busy(LAUNCHER)) == ["b"]


def test_one_that_left_or_disappeared_is_waited_for_no_longer(member, clock, tmp_path):
    a, b, c = member("a"), member("b"), member("c")
    b.leave()
    a.look()
    assert a.dead(b.identity.name)
    assert names(a.others(LAUNCHER)) == ["c"]
    c.disappear()
    a.look()
    assert not a.dead(c.identity.name), "its file may only be invisible here for a while"
    clock.now += LEASE
    assert a.dead(c.identity.name)
    assert not any(c.identity.name in name for name in os.listdir(processes_folder(str(tmp_path))))


def test_one_past_its_lease_is_dead_until_it_gives_a_sign(member, clock):
    a, b = member("a"), member("b")
    a.look()
    clock.now += LEASE - 1
    a.look()
    assert not a.dead(b.identity.name)
    clock.now += 1
    a.look()
    assert a.dead(b.identity.name)
    before = clock.now
    clock.now += 1
    os.utime(Path(b._path("")), (5e9, 5e9))
    a.look()
    assert not a.dead(b.identity.name)
    assert a.beats(b.identity.name, before)


def test_only_failures_since_this_one_is_here_count(member):
    old = member("old")
    old.mark(FAILED, b"long ago")
    a = member("a")
    assert a.failure() is None
    b = member("b")
    b.mark(FAILED, b"task 7: the disk is full")
    a.mark(FAILED, b"my own")
    a.look()
    assert a.failure() == "task 7: the disk is full"
