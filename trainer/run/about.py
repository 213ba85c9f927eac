"""Descriptions of a run beside its checkpoints: its starts, and a summary of its model. They do not affect training."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from torch import nn

from corpora.errors import FarspanError
from corpora.storage.manifest import farspan_version
from trainer.checkpoint.run_files import METRICS, SUMMARY, read_lines, write_sealed
from trainer.model.flops import forward_flops
from trainer.parallel.distributed import World
from trainer.recipe import Recipe
from trainer.run.memory import Setting, step_memory

_LIBRARIES = ("torch", "numpy", "pyarrow", "safetensors", "tokenizers", "transformers")


def describe_start(step: int, steps: int, world: World, recipe: str = "") -> dict[str, Any]:
    """Describe a start: time, recipe, finished updates, those of the whole run, processes, device, versions."""
    return {
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "recipe": recipe,
        "step": step,
        "steps": steps,
        "processes": world.size,
        "device": world.device.type,
        "versions": versions(),
    }


def versions() -> dict[str, str]:
    """Versions of farspan, Python and the libraries that training uses."""
    found = {"farspan": farspan_version(), "python": platform.python_version()}
    for name in _LIBRARIES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def keep_summary(directory: Path, recipe: Recipe, model: nn.Module, vocab_size: int, world: World) -> None:
    """Write ``summary.json`` of a finished run."""
    measured = max((line.get("memory_gib") or 0 for line in read_lines(directory / METRICS)), default=0.0)
    setting = Setting(world_size=world.size, local_size=world.local_size, device=world.device.type)
    try:
        expected = round(step_memory(recipe, vocab_size, setting).total / 2**30, 6)
    except FarspanError:  # a finished run must not fail because the generator's initial weights are gone
        expected = None
    summary = {
        **model_summary(recipe, model, vocab_size),
        "memory_gib": {"expected": expected, "measured": round(measured, 6), "device": world.device.type},
        "versions": versions(),
    }
    write_sealed(directory / SUMMARY, summary)


def model_summary(recipe: Recipe, model: nn.Module, vocab_size: int) -> Mapping[str, Any]:
    """Count parameters by part, and floating-point operations per source token.

    Returns:
        ``parameters`` (``total`` and an entry for each part of the model; shared weights count once, in the first part
        that has them), ``flops_per_source_token`` of a training step with rows of the recipe's maximum lengths, 3 times
        those of a forward pass, and the sizes that these numbers hold for.
    """
    parts: dict[str, int] = {}
    seen: set[int] = set()
    for name, parameter in model.named_parameters(remove_duplicate=False):
        if id(parameter) not in seen:
            seen.add(id(parameter))
            part = name.removeprefix("module.").partition(".")[0]
            parts[part] = parts.get(part, 0) + parameter.numel()
    data = recipe.data
    flops = 3 * forward_flops(recipe.model, vocab_size, data.source_length, data.target_length)
    return {
        "parameters": {"total": sum(parts.values()), **parts},
        "flops_per_source_token": flops // data.source_length,
        "source_length": data.source_length,
        "target_length": data.target_length,
        "vocabulary": vocab_size,
    }
