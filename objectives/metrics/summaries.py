"""``RougeMetric``: ROUGE of summaries in a published flavour."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from objectives.metrics.bootstrap import resample
from objectives.metrics.flavours import FLAVOURS, Flavour
from objectives.metrics.protocol import check_references, round_values
from objectives.rouge import pair_scores


@dataclass(frozen=True)
class RougeMetric:
    """``Metric`` of summaries: ``rouge/rouge1``, ``rouge/rouge2``, ``rouge/rougeL`` and so on.

    ``rouge/geometric_mean`` is (R1 R2 RL)^(1/3) of the aggregated values, with the flavour's own ROUGE-L; some
    flavours have further averages.

    Attributes:
        name: name for ``load_metric``.
        kind: name of the flavour.
    """

    name: str
    kind: str

    needs_options = False

    @property
    def _flavour(self) -> Flavour:
        return FLAVOURS[self.kind]

    @property
    def family(self) -> str:
        return f"rouge:{self.kind}"

    @property
    def flavour(self) -> str:
        return self._flavour.described(self.kind)

    @property
    def primary(self) -> str:
        return self._flavour.primary

    def scores(
        self,
        predictions: Sequence[str],
        references: Sequence[Sequence[str]],
        options: Sequence[Sequence[str]] | None = None,
    ) -> dict[str, np.ndarray]:
        check_references(self.name, references)
        flavour = self._flavour
        if "rougeLsum" in flavour.measures:
            predictions = list(map(flavour.lines, predictions))
            references = [list(map(flavour.lines, texts)) for texts in references]
        results = pair_scores(predictions, references, measures=flavour.measures, stem=flavour.stem)
        firsts = np.cumsum([0, *map(len, references)])[:-1]
        return {f"rouge/{name}": 100 * np.maximum.reduceat(pairs[:, 2], firsts) for name, pairs in results.items()}

    def combine(self, means: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        three = [means[f"rouge/{name}"] for name in ("rouge1", "rouge2", self._flavour.longest)]
        result = {**means, "rouge/geometric_mean": np.cbrt(three[0] * three[1] * three[2])}
        for key, measures in self._flavour.averages.items():
            result[key] = np.mean([means[f"rouge/{name}"] for name in measures], axis=0)
        return result

    def aggregate(self, scores: Mapping[str, np.ndarray]) -> dict[str, float]:
        if self._flavour.median:
            return round_values(self.combine({key: np.median(means) for key, means in resample(scores).items()}))
        return round_values(self.combine({key: values.mean() for key, values in scores.items()}))
