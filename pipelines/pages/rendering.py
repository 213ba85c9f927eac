"""Source and target of a pair, as a task renders them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from corpora.schemas.pairs import PairSet
from corpora.tokenizers.load import load_tokenizer_of
from objectives.api.protocol import Tools, equip
from objectives.api.special_tokens import SpecialTokens
from objectives.tasks.protocol import NO_TARGET, PairFacts, Rendered, load_task, task_of


@dataclass(frozen=True)
class Rendering:
    """A way to render pairs.

    Attributes:
        heading: names of task and preset.
        special: special tokens of the task.
        render: function that renders a pair, given the number of its page and its row in the pairs.
    """

    heading: str
    special: SpecialTokens
    render: Callable[[int, int], Rendered]


def load_rendering(
    pairs: PairSet, name: str | None, preset: str | None = None, options: Mapping[str, Any] | None = None
) -> Rendering | None:
    """Load a task, or the preset of one, that renders each pair with its first target, if it has one; None for None."""
    if name is None:
        return None
    name, preset = task_of(name, preset)
    task = equip(load_task(name, preset, options or {}), Tools(load_tokenizer_of(pairs.folder)))
    special = task.validate(PairFacts.of(pairs.manifest))

    def render(page: int, row: int) -> Rendered:
        batch = pairs.take([row])
        return task.render(batch, np.array([0 if len(batch.targets) else NO_TARGET]), special)

    return Rendering(f"task {name}" + (f", preset {preset}" if preset else ""), special, render)


def describe_cut(rendered: Rendered) -> str:
    """Say how many tokens a task cut from the only pair of a batch."""
    cut = [int(part[0]) for part in (rendered.cut.query, rendered.cut.documents, rendered.cut.target)]
    lost = ", ".join(
        f"{count:,} of the {name}" for count, name in zip(cut, ("query", "documents", "target"), strict=True) if count
    )
    return f"tokens cut: {lost}" if lost else "nothing is cut"
