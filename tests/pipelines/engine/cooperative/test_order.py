"""The order of claims, and the intervals of looking at the progress of others."""

from __future__ import annotations

import pytest

from pipelines.engine.cooperative.order import Pace, by_size, claims_per_listing, listing_cost, shuffled
from pipelines.engine.job import Task


def test_large_tasks_come_first_and_equal_ones_in_an_order_of_each_process():
    sizes = [3, 1000, 10, 1000, 50_000, 0, 980, 1, 1010]
    tasks = [Task(f"task-{index}", {}, size) for index, size in enumerate(sizes)]
    for process in ("one", "two"):
        ordered = [task.units for task in shuffled(tasks, process)]
        assert sorted(ordered[1:5]) == [980, 1000, 1000, 1010]
        assert [ordered[0], *ordered[5:]] == [50_000, 10, 3, 1, 0]
    many = [Task(f"task-{index:03d}", {}, 7) for index in range(100)]
    orders = [[task.name for task in shuffled(many, process)] for process in ("one", "two")]
    assert sorted(orders[0]) == sorted(orders[1])
    assert sum(a == b for a, b in zip(*orders, strict=True)) < 10
    assert shuffled(reversed(many), "one") == shuffled(many, "one")


def test_groups_of_similar_size_are_the_same_for_all_processes():
    tasks = [Task(f"task-{index}", {}, size) for index, size in enumerate([3, 1000, 10, 990, 50_000, 0, 1010])]
    assert [[task.units for task in group] for group in by_size(tasks)] == [
        [50_000], [1000, 990, 1010], [10], [3], [0],
    ]  # fmt: skip
    assert by_size(tasks[::-1]) == by_size(tasks)


def test_looks_become_rarer_the_longer_one_waits():
    now = [0.0]
    pace, looks = Pace(0.05, clock=lambda: now[0]), 0
    while now[0] < 3600:
        now[0] += pace.pause()
        looks += 1
    assert looks < 400
    assert pace.pause() == 10.0
    assert Pace(0.5, clock=lambda: now[0]).pause() == 0.5


@pytest.mark.parametrize(("files", "requests"), [(0, 1), (999, 1), (1000, 2), (89_000, 90)])
def test_a_listing_has_a_thousand_names_a_request(files, requests):
    assert listing_cost(files) == requests


def test_a_claim_on_a_disk_costs_as_much_as_listing_fifty_names_and_in_a_store_as_a_thousand():
    assert [claims_per_listing(files, local=True) for files in (0, 49, 50, 89_000)] == [1, 1, 2, 1781]
    assert [claims_per_listing(files, local=False) for files in (0, 999, 89_000)] == [1, 1, 90]
