"""Options of the commands that show artefacts and test objectives."""

from __future__ import annotations

import pytest

from pipelines.inspect.options import Check, Choice, Show, Stats, Verify
from tests.pipelines.typed import typed


def test_an_objective_or_a_task_is_chosen_for_a_row():
    line = "corpus --row 3 --objective span --preset t5 --set density=0.2 --draw 1 --width 80"
    assert typed(Show, line) == Show(
        artefact="corpus",
        row=3,
        width=80,
        choice=Choice(objective="span", preset="t5", options={"density": 0.2}, draw=1),
    )
    assert typed(Show, "pairs --task led").choice == Choice(task="led")


@pytest.mark.parametrize("kind", [Stats, Verify])
def test_several_folders_are_looked_at(kind):
    assert typed(kind, "a b c").artefact == ("a", "b", "c")


def test_rows_of_an_objectives_test_are_counted():
    assert typed(Check, "span --corpus c --rows 5") == Check(objective="span", corpus="c", rows=5)
