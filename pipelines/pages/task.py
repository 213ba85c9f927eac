"""A task chosen to render pairs, and the tokens that it cuts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from corpora.schemas.pairs import PairSet
from corpora.tokenizers.load import load_tokenizer_of
from objectives.api.protocol import Tools, equip
from objectives.api.special_tokens import SpecialTokens
from objectives.tasks.protocol import PairFacts, Rendered, Task, load_task, task_of


@dataclass(frozen=True)
class ChosenTask:
    """A task that can render certain pairs.

    Attributes:
        heading: names of task and preset.
    """

    task: Task
    special: SpecialTokens
    heading: str

    @classmethod
    def load(
        cls, pairs: PairSet, task: str, preset: str | None = None, options: Mapping[str, Any] | None = None
    ) -> ChosenTask:
        """Load a task, or the preset of one, for ``pairs``."""
        name, preset = task_of(task, preset)
        chosen = equip(load_task(name, preset, options or {}), Tools(load_tokenizer_of(pairs.folder)))
        heading = f"task {name}" + (f", preset {preset}" if preset else "")
        return cls(chosen, chosen.validate(PairFacts.of(pairs.manifest)), heading)


def cut_in_words(rendered: Rendered) -> str:
    """Say how many tokens a task cut from the only pair of a batch."""
    cut = [int(part[0]) for part in (rendered.cut.query, rendered.cut.documents, rendered.cut.target)]
    lost = ", ".join(
        f"{count:,} of the {name}" for count, name in zip(cut, ("query", "documents", "target"), strict=True) if count
    )
    return f"tokens cut: {lost}" if lost else "nothing is cut"
