"""Configuration of the generator: the masked language model that finds hard spans for ``model_based``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from corpora.errors import FarspanError
from trainer.data.config import DataConfig, ObjectiveConfig
from trainer.model.config import ModelConfig

OBJECTIVE = "model_based"


@dataclass(frozen=True, kw_only=True)
class GeneratorConfig:
    """The generator, frozen or jointly trained (BART-LS, arXiv:2209.10052, section 2.3).

    Attributes:
        mode: ``frozen`` scores with the weights of ``initial``, as ``data.objective.scorer`` does; ``joint`` trains the
            generator together with the model, on all candidates, and scores with its current weights.
        initial: encoder-only run of ``farspan train`` with the generator's initial weights.
        model: configuration of an encoder-only model with random weights, instead of ``initial``; for ``joint``.
        weight: weight of the generator's mean loss per candidate token against the model's mean loss per target token;
            for ``joint``. The paper does not state it, and the published code ignores its setting.
    """

    mode: Literal["frozen", "joint"] = "frozen"
    initial: str | None = None
    model: ModelConfig | None = None
    weight: float = 1.0

    def __post_init__(self) -> None:
        if (self.initial is None) == (self.model is None):
            raise FarspanError(
                "generator: set either initial, the run that trained it, or model, a section with its sizes, to begin "
                "with random weights"
            )
        if self.model is not None and self.mode == "frozen":
            raise FarspanError(
                "generator.mode is 'frozen', but generator.model has random, untrained weights; set "
                "generator.initial, or generator.mode to joint"
            )
        if self.model is not None and self.model.decoder is not None:
            raise FarspanError("generator.model has a decoder section; it must be an encoder alone")
        if not 0 < self.weight < math.inf:
            raise FarspanError(f"generator.weight is {self.weight}; it must be above 0 and finite")

    @property
    def scorer(self) -> str | None:
        """Run with a frozen generator's weights; None in joint training."""
        return self.initial if self.mode == "frozen" else None

    def identity(self) -> dict[str, Any] | None:
        """Values that must not change when a run resumes; None for a frozen generator, which is part of the data."""
        sections = asdict(self)
        return {name: sections[name] for name in ("model", "weight")} if self.mode == "joint" else None

    def check_use(self, model: ModelConfig, data: Sequence[DataConfig]) -> None:
        """Check that something uses this generator."""
        if not model.decoder:
            raise FarspanError(
                "generator chooses the targets of a decoder, but the model has none; add a model.decoder section, or "
                "remove the generator's"
            )
        if any(source.pairs for section in data for source in section.sources):
            raise FarspanError(
                "generator chooses what to hide in a corpus, but the data are pairs; remove the generator section"
            )
        objectives = [source.objective for section in data for source in section.sources]
        if self.scorer and not any(objective and objective.scorer == self.scorer for objective in objectives):
            raise FarspanError(
                "generator.mode is 'frozen', but no objective in the data uses it: set data.objective to model_based "
                "without a scorer, or remove the generator section"
            )


def with_scorer(data: DataConfig, scorer: str) -> DataConfig:
    """Set ``scorer`` in every ``model_based`` objective of a data section that has no scorer.

    An objective beside a mask set is left unchanged, because its masks are already chosen.
    """
    mixture = tuple(
        replace(source, objective=_set_scorer(source.objective, source.masks, scorer)) for source in data.mixture
    )
    return replace(data, objective=_set_scorer(data.objective, data.masks, scorer), mixture=mixture)


def _set_scorer(objective: ObjectiveConfig | None, masks: str | None, scorer: str) -> ObjectiveConfig | None:
    if objective is None or masks is not None or objective.name != OBJECTIVE or objective.scorer:
        return objective
    return replace(objective, scorer=scorer)
