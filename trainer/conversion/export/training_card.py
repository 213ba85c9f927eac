"""The section of a model card about the run that made a model: recipe, data and scores."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from corpora.errors import FarspanError
from corpora.printing import counted
from corpora.storage import files
from corpora.storage.manifest_file import NAME, manifest_sha256
from trainer.checkpoint.run_files import METRICS, STARTS, read_lines
from trainer.recipe import Recipe, read_recipe


def training_section(source: Path) -> str:
    """Describe the run that ``source`` belongs to in Markdown; empty if it is neither a run nor a checkpoint.

    Artefacts are given by the name of their folder; local ones also by the sha256 of their manifest.
    """
    run = source if (source / METRICS).is_file() else source.parent.parent
    try:
        recipe = read_recipe(run)
    except FarspanError:
        return ""
    if recipe is None:
        return ""
    name = next((start["recipe"] for start in read_lines(run / STARTS) if start.get("recipe")), "")
    return "\n".join([*_recipe(recipe, name), *_data(recipe), *_scores(run)]) + "\n"


def _recipe(recipe: Recipe, name: str) -> list[str]:
    stages = recipe.curriculum
    origin = f"Recipe `{name}`: " if name else ""
    epochs = recipe.run.epochs if recipe.run.steps is None else None
    length = counted(stages[-1].last_step, "update") if epochs is None else counted(epochs, "epoch")
    optimizer = f"{recipe.optimizer.name}, learning rate {recipe.optimizer.learning_rate:g}"
    return [
        "## Training\n",
        f"{origin}{length} of {recipe.run.batch_size:,} sequences, sources of up to {recipe.data.source_length:,} and "
        f"targets of up to {recipe.data.target_length:,} tokens; {optimizer}; {recipe.run.precision}.\n",
    ]


def _data(recipe: Recipe) -> list[str]:
    """A line for each artefact that the run was trained on."""
    folders: dict[str, str] = {}
    for stage in recipe.curriculum:
        for source in stage.data.sources:
            task = source.task.name if source.pairs and source.task else source.objective and source.objective.name
            for folder in filter(None, (source.folder, source.masks)):
                folders[folder] = f", {task}" if task else ""
    lines = ["| data | sha256 of manifest.json |", "|---|---|"]
    for folder, task in folders.items():
        there = files.is_local(folder) and files.exists(os.path.join(folder, NAME))
        digest = f"`{manifest_sha256(folder)}`" if there else ""
        lines.append(f"| `{os.path.basename(folder.rstrip('/'))}`{task} | {digest} |")
    return [*lines, ""] if folders else []


def _scores(run: Path) -> list[str]:
    """Table of the last value of each evaluated metric."""
    found: dict[str, tuple[int, Any]] = {}
    for line in read_lines(run / METRICS):
        if "learning_rate" not in line:  # an evaluation
            numbers = {name: value for name, value in line.items() if isinstance(value, int | float) and name != "step"}
            found |= {name: (line.get("step", 0), value) for name, value in numbers.items()}
    lines = [f"| {name} | {value:.4f} | {step:,} |" for name, (step, value) in found.items()]
    return ["| score | value | update |", "|---|---:|---:|", *lines] if lines else []
