"""The limit on skipped updates, whose loss or gradient was not finite."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from corpora.errors import FarspanError
from trainer.optim.optimizer import calmer
from trainer.run_config import RunConfig

_NAMED = 4  # maximum number of samples in a message


class SkippedUpdates:
    """Counts skipped updates in a row."""

    def __init__(self, config: RunConfig) -> None:
        self._config = config
        self._count = 0

    def count(self, record: Mapping[str, Any]) -> None:
        """Count an update, given its metrics, whose ``skipped`` lists samples if it was skipped."""
        if "skipped" not in record:
            self._count = 0
            return
        self._count += 1
        run, step, samples = self._config, record["step"], record["skipped"]
        named = [" ".join(map(str, sample.values())) for sample in samples[:_NAMED]]
        ids = "; ".join(named) + ("; ..." if len(samples) > _NAMED else "")
        cure = f"look at these sequences in the corpus, or {calmer(run.precision)}"
        if run.non_finite == "abort":
            raise FarspanError(
                f"step {step}: loss or gradient is not finite (samples {ids}); {cure}, or set run.non_finite to skip"
            )
        if self._count >= run.max_skipped:
            raise FarspanError(
                f"{self._count} updates in a row, up to step {step}, had a loss or gradient that is not finite; "
                f"metrics.jsonl names their samples (the last ones: {ids}); {cure}"
            )
