"""Logs of a run: a file with one JSON line per update, and TensorBoard."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from corpora.errors import FarspanError, from_extra
from corpora.storage.files import write_bytes
from trainer.checkpoint.run_files import METRICS, read_lines, seal_line
from trainer.metrics import MetricsConfig


class MetricsFile:
    """The file ``metrics.jsonl``: one JSON object per line, each with its ``step``."""

    def __init__(self, path: Path, step: int) -> None:
        """Open the file for the updates after ``step``, and drop lines of such updates, which will be repeated."""
        path.parent.mkdir(parents=True, exist_ok=True)
        kept = [line for line in read_lines(path) if isinstance(line.get("step"), int) and line["step"] <= step]
        write_bytes(str(path), b"".join(map(seal_line, kept)))
        self._path, self._file = path, path.open("ab", buffering=0)

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

    def close(self) -> None:
        self._file.close()


class TensorBoard:
    """Event files with the same records for TensorBoard; needs the extra ``tracking``."""

    def __init__(self, directory: Path, step: int) -> None:
        """Write event files into ``directory`` for the updates after ``step``; events of later updates are hidden."""
        with from_extra("tracking", "metrics.tensorboard = true"):
            from torch.utils.tensorboard import SummaryWriter
        self._writer = SummaryWriter(str(directory), purge_step=step + 1)

    def write(self, record: Mapping[str, Any]) -> None:
        for name, value in record.items():
            if name != "step" and isinstance(value, int | float):
                self._writer.add_scalar(name, value, record["step"])

    def close(self) -> None:
        self._writer.close()


class MetricsLogs:
    """A group of logs that receive the same records."""

    def __init__(self, logs: Sequence[MetricsFile | TensorBoard]) -> None:
        self._logs = logs

    def write(self, record: Mapping[str, Any]) -> None:
        for log in self._logs:
            log.write(record)

    def close(self) -> None:
        for log in self._logs:
            log.close()


def open_metrics(config: MetricsConfig, directory: Path, step: int, rank: int = 0) -> MetricsLogs:
    """Open ``metrics.jsonl`` in ``directory``, and TensorBoard if configured, for the updates after ``step``.

    All ranks have the same metrics, so only rank 0 writes them.
    """
    if rank:
        return MetricsLogs([])
    logs: list[MetricsFile | TensorBoard] = [TensorBoard(directory, step)] if config.tensorboard else []
    return MetricsLogs([MetricsFile(directory / METRICS, step), *logs])
