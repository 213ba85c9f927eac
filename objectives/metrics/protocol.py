"""``Metric``, the protocol of all metrics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, SupportsFloat

import numpy as np

from corpora.errors import FarspanError


class Metric(Protocol):
    """Scores predictions against references, in percent.

    Attributes:
        name: name for ``load_metric``.
        family: name of the metric's family; tables must not mix families, because their numbers are not comparable.
        flavour: tool, normalisation, sentence splitting and aggregation, in one line that every output shows.
        primary: key of ``aggregate`` by which systems and checkpoints are compared.
        needs_options: True if ``scores`` needs the options of multiple-choice questions.
    """

    @property
    def name(self) -> str: ...

    @property
    def family(self) -> str: ...

    @property
    def flavour(self) -> str: ...

    @property
    def primary(self) -> str: ...

    @property
    def needs_options(self) -> bool: ...

    def scores(
        self,
        predictions: Sequence[str],
        references: Sequence[Sequence[str]],
        options: Sequence[Sequence[str]] | None = None,
    ) -> dict[str, np.ndarray]:
        """Score every prediction: for each key, the best score over its references in percent, ``(n,)`` float64.

        Args:
            predictions: n texts.
            references: at least one text for each prediction.
            options: the options of each question, for metrics that need them.

        Raises:
            FarspanError: a prediction without references, or without options if the metric needs them.
        """

    def combine(self, means: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Add values computed elementwise from means, e.g. their geometric mean; all arrays have one shape."""

    def aggregate(self, scores: Mapping[str, np.ndarray]) -> dict[str, float]:
        """Aggregate ``scores``, and add the values of ``combine``: one number for each key, with 4 decimals."""


def check_references(name: str, references: Sequence[Sequence[str]]) -> None:
    """Check that every prediction has references.

    Raises:
        FarspanError: a prediction has none; names the first.
    """
    for number, texts in enumerate(references):
        if not len(texts):
            raise FarspanError(f"metric {name}: prediction {number} has no reference; score pairs that have one")


def round_values(values: Mapping[str, SupportsFloat]) -> dict[str, float]:
    """Round values to 4 decimals, as SCROLLS prints them."""
    return {key: round(float(value), 4) for key, value in values.items()}
