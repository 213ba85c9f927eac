"""The recipe's section on the masked language model that finds hard spans for objective ``model_based``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from corpora.errors import FarspanError
from trainer.data.config import DataConfig, ObjectiveConfig, SourceConfig
from trainer.model.config import ModelConfig

OBJECTIVE = "model_based"


@dataclass(frozen=True, kw_only=True)
class GeneratorConfig:
    """Xiong et al. 2022 (arXiv:2209.10052), section 2.3: the generator "can either be frozen or jointly trained".

    Attributes:
        mode: ``frozen`` asks ``initial`` and leaves it as it is, which is what ``data.objective.scorer`` says too;
            ``joint`` trains it beside the model, on all candidates, and asks it as it then is.
        initial: a run of ``farspan train`` with an encoder alone, whose weights it begins with.
        model: instead, an encoder alone whose weights are drawn; for ``joint``.
        weight: of its mean loss a candidate token beside the model's mean loss a target token; for ``joint``. The
            paper gives none, and the published code ignores its own.

    Raises:
        FarspanError: neither or both of ``initial`` and ``model``, a decoder, a frozen model without training, a weight
            that is not above 0.
    """

    mode: Literal["frozen", "joint"] = "frozen"
    initial: str | None = None
    model: ModelConfig | None = None
    weight: float = 1.0

    def __post_init__(self) -> None:
        if (self.initial is None) == (self.model is None):
            raise FarspanError(
                "generator: set one of initial, the run that trained it, and model, a section of its sizes, to begin "
                "with drawn weights"
            )
        if self.model is not None and self.mode == "frozen":
            raise FarspanError(
                "generator.mode is 'frozen', but generator.model has drawn weights, which know nothing; set "
                "generator.initial, or generator.mode to joint"
            )
        if self.model is not None and self.model.decoder is not None:
            raise FarspanError("generator.model has a decoder section; it must be an encoder alone")
        if not 0 < self.weight < math.inf:
            raise FarspanError(f"generator.weight is {self.weight}; it must be above 0 and finite")


def with_scorer(data: DataConfig, scorer: str) -> DataConfig:
    """A data section in which every ``model_based`` that names no scorer asks ``scorer``.

    A mask set beside the objective is left as it is: it has its choice already.
    """
    objective = _asking(data.objective, data.masks, scorer)
    return replace(data, objective=objective, mixture=sources_with_scorer(data.mixture, scorer))


def sources_with_scorer(sources: Sequence[SourceConfig], scorer: str) -> tuple[SourceConfig, ...]:
    """The sources of a mixture, as ``with_scorer``."""
    return tuple(replace(source, objective=_asking(source.objective, source.masks, scorer)) for source in sources)


def _asking(objective: ObjectiveConfig | None, masks: str | None, scorer: str) -> ObjectiveConfig | None:
    if objective is None or masks is not None or objective.name != OBJECTIVE or objective.scorer:
        return objective
    return replace(objective, scorer=scorer)
