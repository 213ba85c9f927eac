"""Printing of a rendered pair: the source and target that a task makes of it, and what it cuts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from rich.console import Console
from rich.text import Text

from corpora.schemas.pairs import PairSet
from corpora.tokenizers.load import load_tokenizer_of
from corpora.tokenizers.protocol import Tokenizer
from objectives.api.protocol import Tools, equip
from objectives.api.special_tokens import SpecialTokens
from objectives.tasks.protocol import NO_TARGET, PairFacts, Rendered, Task, load_task, task_of
from pipelines.inspect.options import Choice
from pipelines.inspect.row_text import print_rendered


@dataclass(frozen=True)
class ChosenTask:
    """A task that can render certain pairs.

    Attributes:
        heading: names of task and preset.
    """

    task: Task
    special: SpecialTokens
    tokenizer: Tokenizer
    heading: str


def chosen_task(pairs: PairSet, choice: Choice) -> ChosenTask:
    """Load the chosen task for ``pairs``.

    Raises:
        FarspanError: no such task or preset, or one that cannot work on these pairs.
    """
    assert choice.task
    name, preset = task_of(choice.task, choice.preset)
    tokenizer = load_tokenizer_of(pairs.folder)
    task = equip(load_task(name, preset, choice.options), Tools(tokenizer))
    heading = f"task {name}" + (f", preset {preset}" if preset else "")
    return ChosenTask(task, task.validate(PairFacts.of(pairs.manifest)), tokenizer, heading)


def print_task(console: Console, pairs: PairSet, row: int, width: int, chosen: ChosenTask) -> None:
    """Print row ``row`` of pairs with its first target, rendered by a task.

    Args:
        width: maximum characters of each text; 0 for all.
    """
    batch = pairs.take([row])
    target = 0 if len(batch.targets) else NO_TARGET
    rendered = chosen.task.render(batch, np.array([target]), chosen.special)
    console.print(Text.assemble((f"\n{chosen.heading}", "bold"), f": {cut_in_words(rendered)}"))
    print_rendered(console, rendered.examples, chosen.tokenizer, chosen.special.ids, width)


def cut_in_words(rendered: Rendered) -> str:
    """Say how many tokens a task cut from the only pair of a batch."""
    cut = [int(part[0]) for part in (rendered.cut.query, rendered.cut.documents, rendered.cut.target)]
    lost = ", ".join(
        f"{count:,} of the {name}" for count, name in zip(cut, ("query", "documents", "target"), strict=True) if count
    )
    return f"tokens cut: {lost}" if lost else "nothing is cut"
