"""The models, tables, tasks and sizes of ``ablations.py``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from downstream_tasks import FACTS, Chains, Size

SHORT = 256
"""Positions of the short model, and of a block."""
RECIPES = {"block": "tiny_block", "overlap": "tiny_overlap", "global": "tiny_global", "pooling": "tiny"}
TOKENS = '{name="cross_document", preset="paper", options={global_attention="none"}}'
"""Objective of the scorer."""
INIT_STD = {"model.init_std": 0.088}
"""Of all models: 1 / sqrt(width), because a model of this width hardly uses its encoder after a start from .02."""
DECODER = {"model.decoder.layers": 1, **INIT_STD}
"""Of all models but the scorer."""


class Model(NamedTuple):
    """A row of a table.

    Attributes:
        attention: one of ``RECIPES``.
        corpus: of the long pretraining; None for none.
        objective: of the long pretraining.
    """

    attention: str = "pooling"
    corpus: str | None = None
    objective: str = "span-mixed"

    @property
    def name(self) -> str:
        return "-".join([self.attention, *([self.corpus, self.objective] if self.corpus else [])])


TABLES = {
    1: {name: Model(attention=name) for name in RECIPES},
    2: {"none": Model(), **{name: Model(corpus=name) for name in ("long", "random", "linked")}},
    3: {
        "none": Model(),
        **{name: Model(corpus="random", objective=name) for name in ("span-5", "span-mixed", "principal", "model")},
    },
}
"""Number of the table -> label of the row -> model; the first row is what the others are compared with."""

OBJECTIVES = {
    "span-5": '{name="span", preset="bart_ls"}',
    "span-mixed": '{name="span", preset="bart_ls_mixed"}',
    "principal": '{name="principal_sentences", preset="bart_ls", options={target_length=TARGET}}',
    "model": '{name="model_based", preset="bart_ls", scorer="SCORER", options={target_length=TARGET}}',
}


@dataclass(frozen=True, kw_only=True)
class Tuning:
    """Size of a downstream task and of the fine-tuning on it.

    Attributes:
        size: of the task.
        rendering: preset and options of the task ``text_to_text``, without lengths.
        length: source positions.
        target: target positions.
        block: positions of an encoder block.
        steps: updates.
        batch_size: examples of an update.
        learning_rate: of the fine-tuning.
        tables: that have the task.
    """

    size: Size
    rendering: str
    length: int
    target: int
    block: int = SHORT
    steps: int
    batch_size: int = 4
    learning_rate: float = 1e-3
    tables: tuple[int, ...] = (1, 2, 3)

    @property
    def task(self) -> str:
        """The section ``data.task`` of a recipe."""
        lengths = f"source_length={self.length}, target_length={self.target}"
        return f'{{name="text_to_text", {self.rendering.replace("LENGTHS", lengths)}}}'


ABOUT_TITLES = f'preset="bart_ls", options={{LENGTHS, block={SHORT}, query_length=64}}'
LEADS = 'preset="primera", options={LENGTHS}'
IN_DECODER = 'options={LENGTHS, query="decoder"}'


@dataclass(frozen=True, kw_only=True)
class Scale:
    """Size of the experiment; by default 80 minutes of two cores for three seeds.

    These sizes are too small for scores: a model gives a few phrases to all questions. Its losses say more.

    Attributes:
        length: source positions of the long models.
        sections: lead sections in the pretraining corpora.
        short_steps: updates of the short model, 16 rows each.
        long_steps: updates of the long pretraining, 4 rows each.
        tunings: downstream tasks.
        facts: of task ``chains``.
    """

    length: int = 2048
    sections: int = 10_033
    short_steps: int = 600
    long_steps: int = 100
    tunings: Mapping[str, Tuning] = field(
        default_factory=lambda: {
            "wiki-what": Tuning(
                size=Size(train_documents=256, documents=16, words=1300, questions=16),
                rendering=ABOUT_TITLES,
                length=2048,
                target=32,
                steps=80,
            ),
            "wiki-lead": Tuning(
                size=Size(train_documents=256, documents=64, words=500),
                rendering=LEADS,
                length=1024,
                target=256,
                steps=80,
            ),
            "chains": Tuning(
                size=Size(train_documents=8_000, documents=64, words=70, questions=16),
                rendering=IN_DECODER,
                length=256,
                target=64,
                block=32,
                steps=600,
                batch_size=32,
                tables=(1,),
            ),
        }
    )
    facts: Chains = FACTS


QUICK_SIZE = Size(train_documents=4, documents=2, words=300, questions=4)
QUICK = Scale(
    length=1024,
    sections=300,
    short_steps=4,
    long_steps=2,
    tunings={
        "wiki-what": Tuning(size=QUICK_SIZE, rendering=ABOUT_TITLES, length=1024, target=16, steps=2, tables=(2,)),
        "wiki-lead": Tuning(size=QUICK_SIZE, rendering=LEADS, length=1024, target=64, steps=2, tables=(3,)),
        "chains": Tuning(
            size=replace(QUICK_SIZE, words=70),
            rendering=IN_DECODER,
            length=256,
            target=64,
            block=32,
            steps=3,
            tables=(1,),
        ),
    },
    facts=Chains(count=4, hops=2),
)
