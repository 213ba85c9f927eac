"""Leases under clocks that differ between machines, jump, or are those of the writers."""

from __future__ import annotations

import pytest

from pipelines.engine.presence.lease import Watch, beat_of

LEASE = 60.0


class Machine:
    """A process that renews its file and watches the others, by a monotonic clock of its own.

    Args:
        boot: its monotonic clock when the world begins.
        stamp: added to the time of the files that it writes, where the store takes the writer's clock.
    """

    def __init__(self, world: World, name: str, boot: float = 0.0, stamp: float = 0.0) -> None:
        self.world, self.name, self.boot, self.stamp = world, name, boot, stamp
        self.watch, self.renewed = Watch(), 0.0
        world.machines.append(self)
        self.renew()

    @property
    def clock(self) -> float:
        return self.world.time + self.boot

    def renew(self) -> None:
        self.world.files[self.name] = self.world.store_clock + self.stamp
        self.renewed = self.clock

    def look(self) -> None:
        self.watch.look(dict(self.world.files), self.name, self.renewed, self.clock)

    def thinks_dead(self, other: Machine) -> bool:
        self.look()
        return self.watch.dead(other.name, LEASE, self.clock)


class World:
    """A store with a clock, and machines that renew as long as they are not paused."""

    def __init__(self) -> None:
        self.time, self.store_clock = 0.0, 1_000_000.0
        self.files: dict[str, float] = {}
        self.machines: list[Machine] = []
        self.paused: set[str] = set()

    def run(self, seconds: float) -> None:
        for _ in range(int(seconds)):
            self.time += 1
            self.store_clock += 1
            for machine in self.machines:
                if machine.name not in self.paused and self.time % beat_of(LEASE) == 0:
                    machine.renew()
                    machine.look()


@pytest.mark.parametrize("boot", [0, 5e6, -3e3])
def test_a_process_past_its_lease_is_dead_whatever_the_clocks_of_the_machines_say(boot):
    world = World()
    first, second = Machine(world, "first", boot), Machine(world, "second")
    world.run(300)
    assert not second.thinks_dead(first)
    world.paused.add("first")
    world.run(LEASE - beat_of(LEASE) - 1)
    assert not second.thinks_dead(first)
    world.run(beat_of(LEASE) + 1)
    assert second.thinks_dead(first)


def test_a_process_that_wakes_up_lives_again():
    world = World()
    first, second = Machine(world, "first"), Machine(world, "second")
    world.paused.add("first")
    world.run(2 * LEASE)
    assert second.thinks_dead(first)
    assert not first.thinks_dead(second)
    world.paused.clear()
    world.run(beat_of(LEASE))
    assert not second.thinks_dead(first)


def test_a_late_process_needs_two_beats_to_judge_an_old_file_and_no_whole_lease():
    world = World()
    first = Machine(world, "first")
    world.paused.add("first")
    world.run(10 * LEASE)
    late = Machine(world, "late")
    assert not late.thinks_dead(first)
    world.run(2 * beat_of(LEASE))
    assert late.thinks_dead(first)


@pytest.mark.parametrize("stamp", [-3600, -61, 61, 3600])
def test_writers_clocks_that_are_wrong_kill_nobody_who_lives(stamp):
    """As on a file system that takes the writer's clock: its files look an hour old, or from the future."""
    world = World()
    wrong, right = Machine(world, "wrong", stamp=stamp), Machine(world, "right")
    for _ in range(300):
        world.run(1)
        assert not right.thinks_dead(wrong)
        assert not wrong.thinks_dead(right)
    world.paused.add("wrong")
    world.run(LEASE + beat_of(LEASE))
    assert right.thinks_dead(wrong)


def test_a_stores_clock_that_jumps_kills_nobody_and_saves_nobody():
    world = World()
    first, second = Machine(world, "first"), Machine(world, "second")
    world.run(60)
    world.store_clock += 7200
    second.renew()
    assert not second.thinks_dead(first)
    world.run(60)
    assert not second.thinks_dead(first)
    world.store_clock -= 1e6
    world.paused.add("first")
    world.run(2 * LEASE)
    assert second.thinks_dead(first)


def test_a_file_that_cannot_be_seen_yet_has_a_lease_too():
    """Network file systems cache folders, so a new file may be missing from a listing for a while."""
    world = World()
    second = Machine(world, "second")
    second.look()
    assert not second.watch.dead("unseen", LEASE, second.clock)
    world.run(LEASE - 1)
    assert not second.watch.dead("unseen", LEASE, second.clock)
    first = Machine(world, "unseen")
    assert not second.thinks_dead(first)
    world.run(5)
    assert not second.watch.dead("never", LEASE, second.clock)
    world.run(LEASE)
    assert second.watch.dead("never", LEASE, second.clock)


def test_beats_are_signs_that_came_since():
    world = World()
    first, second = Machine(world, "first"), Machine(world, "second")
    second.look()
    before = second.clock
    world.paused.add("first")
    world.run(30)
    assert not second.watch.beats("first", before)
    world.paused.clear()
    world.run(beat_of(LEASE))
    assert second.watch.beats("first", before)
    assert not second.watch.beats("nobody", before)
    assert first.watch.now >= 1_000_000
