"""Records of a run: metrics for each update, TensorBoard, starts, the summary, and profiles. None affect training."""

from __future__ import annotations

import errno
import os
import platform
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile

from corpora.errors import FarspanError, from_extra
from corpora.storage.files import write_bytes
from corpora.storage.manifest import farspan_version
from trainer.checkpoint.run_files import METRICS, SUMMARY, read_lines, seal_line, write_sealed
from trainer.data.config import DataConfig
from trainer.metrics import forward_flops
from trainer.model.config import ModelConfig
from trainer.parallel.distributed import World
from trainer.recipe import Recipe
from trainer.run.memory import Setting, step_memory


class MetricsLog:
    """The log of updates and evaluations: ``metrics.jsonl``, with a JSON object per line, each with its ``step``.

    With ``tensorboard``, event files have the same numbers, which needs the extra ``tracking``.
    """

    def __init__(self, directory: Path, step: int, tensorboard: bool = False) -> None:
        """Open the log for the updates after ``step``; what it has of such updates is dropped, as they are repeated."""
        self._path, self._events = directory / METRICS, None
        if tensorboard:
            with from_extra("tracking", "metrics.tensorboard = true"):
                from torch.utils.tensorboard import SummaryWriter
            self._events = SummaryWriter(str(directory), purge_step=step + 1)
        directory.mkdir(parents=True, exist_ok=True)
        kept = [line for line in read_lines(self._path) if isinstance(line.get("step"), int) and line["step"] <= step]
        write_bytes(str(self._path), b"".join(map(seal_line, kept)))
        self._file = self._path.open("ab", buffering=0)

    def write(self, record: Mapping[str, Any]) -> None:
        """Add a line."""
        line = seal_line(record)
        try:
            if self._file.write(line) < len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            raise FarspanError(
                f"{self._path} cannot be written to ({error}); make room, then repeat the command to continue from the "
                "last checkpoint"
            ) from error
        if self._events:
            for name, value in record.items():
                if name != "step" and isinstance(value, int | float):
                    self._events.add_scalar(name, value, record["step"])

    def close(self) -> None:
        self._file.close()
        if self._events:
            self._events.close()


FOLDER = "profile"
_ROWS = 10  # operations in the table


class Profile:
    """Records the updates from ``run.profile[0]`` to ``run.profile[1]``, on each process.

    Afterwards ``profile/`` in the run's directory has ``trace-RANK.json.gz``, which https://ui.perfetto.dev opens, and
    ``operations-RANK.txt``, the ten operations with the most self time. Recording slows these updates down.
    """

    def __init__(self, updates: tuple[int, ...], directory: Path, rank: int, device: torch.device) -> None:
        self._first, self._last = updates or (0, -1)
        self._place, self._rank, self._cuda = directory / FOLDER, rank, device.type == "cuda"
        self._running: profile | None = None

    def before(self, update: int) -> None:
        """Begin or end the recording as needed before update number ``update``."""
        if update > self._last:
            self.close()
        elif update >= self._first and self._running is None:
            activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if self._cuda else [])]
            self._running = profile(activities=activities)
            self._running.start()

    def close(self) -> None:
        """Write the recording, if there is one."""
        recorded, self._running = self._running, None
        if recorded is None:
            return
        recorded.stop()
        self._place.mkdir(parents=True, exist_ok=True)
        recorded.export_chrome_trace(str(self._place / f"trace-{self._rank}.json.gz"))
        key = "self_cuda_time_total" if self._cuda else "self_cpu_time_total"
        table = recorded.key_averages().table(sort_by=key, row_limit=_ROWS)
        (self._place / f"operations-{self._rank}.txt").write_text(table, "utf-8")


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
    versions = {"farspan": farspan_version(), "python": platform.python_version()}
    for name in _LIBRARIES:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            continue
    return versions


def keep_summary(recipe: Recipe, model: nn.Module, vocab_size: int, world: World) -> None:
    """Write ``summary.json`` of a finished run."""
    directory = Path(recipe.run.directory)
    measured = max((line.get("memory_gib") or 0 for line in read_lines(directory / METRICS)), default=0.0)
    setting = Setting(world_size=world.size, local_size=world.local_size, device=world.device.type)
    try:
        expected = round(step_memory(recipe, vocab_size, setting).total / 2**30, 6)
    except FarspanError:  # a finished run must not fail because the generator's initial weights are gone
        expected = None
    summary = {
        **model_summary(recipe.model, recipe.data, model, vocab_size),
        "memory_gib": {"expected": expected, "measured": round(measured, 6), "device": world.device.type},
        "versions": versions(),
    }
    write_sealed(directory / SUMMARY, summary)


def model_summary(config: ModelConfig, data: DataConfig, model: nn.Module, vocab_size: int) -> Mapping[str, Any]:
    """Count parameters by part, and operations per source token of a training step with rows of maximum lengths.

    Shared weights count once, in the first part that has them.
    """
    parts: dict[str, int] = {}
    seen: set[int] = set()
    for name, parameter in model.named_parameters(remove_duplicate=False):
        if id(parameter) not in seen:
            seen.add(id(parameter))
            part = name.removeprefix("module.").partition(".")[0]
            parts[part] = parts.get(part, 0) + parameter.numel()
    flops = 3 * forward_flops(config, vocab_size, data.source_length, data.target_length)
    return {
        "parameters": {"total": sum(parts.values()), **parts},
        "flops_per_source_token": flops // data.source_length,
        "source_length": data.source_length,
        "target_length": data.target_length,
        "vocabulary": vocab_size,
    }
