"""Files of a finished or stopped run: its metrics, and the weights of its newest checkpoint."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from trainer.checkpoint.files import newest_first
from trainer.checkpoint.state import Tensors, load_tensors
from trainer.recipe import Recipe


def metrics_of(recipe: Recipe) -> list[dict[str, Any]]:
    """The lines of its metrics."""
    return [json.loads(line) for line in Path(recipe.run.directory, "metrics.jsonl").read_text().splitlines()]


def weights_of(recipe: Recipe) -> Tensors:
    """The model of its newest checkpoint."""
    return load_tensors(newest_first(Path(recipe.run.directory, "checkpoints"))[0] / "model")
