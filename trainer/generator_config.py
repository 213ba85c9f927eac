"""Configuration of the generator: the masked language model that finds hard spans for ``model_based``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from corpora.errors import FarspanError
from trainer.data.config import DataConfig
from trainer.model.config import ModelConfig


@dataclass(frozen=True, kw_only=True)
class GeneratorConfig:
    """The generator, trained on all candidates beside the model (BART-LS, arXiv:2209.10052, section 2.3).

    A generator that only scores is ``data.objective.scorer``.

    Attributes:
        initial: encoder-only run of ``farspan train`` with the generator's initial weights.
        model: configuration of an encoder-only model with random weights, instead of ``initial``.
        weight: weight of the generator's mean loss per candidate token against the model's mean loss per target token.
            The paper does not state it, and the published code ignores its setting.
    """

    initial: str | None = None
    model: ModelConfig | None = None
    weight: float = 1.0

    def __post_init__(self) -> None:
        if (self.initial is None) == (self.model is None):
            raise FarspanError(
                "generator: set either initial, the run that trained it, or model, a section with its sizes, to begin "
                "with random weights"
            )
        if self.model is not None and self.model.decoder is not None:
            raise FarspanError("generator.model has a decoder section; it must be an encoder alone")
        if not 0 < self.weight < math.inf:
            raise FarspanError(f"generator.weight is {self.weight}; it must be above 0 and finite")

    def identity(self) -> dict[str, Any]:
        """Values that must not change when a run resumes."""
        sections = asdict(self)
        return {name: sections[name] for name in ("model", "weight")}

    def check_use(self, model: ModelConfig, data: Sequence[DataConfig]) -> None:
        """Check that the model and the data can use this generator."""
        if not model.decoder:
            raise FarspanError(
                "generator chooses the targets of a decoder, but the model has none; add a model.decoder section, or "
                "remove the generator's"
            )
        if any(source.pairs for section in data for source in section.sources):
            raise FarspanError(
                "generator chooses what to hide in a corpus, but the data are pairs; remove the generator section"
            )
