"""The record of a job that was submitted to an engine: ``_work/submitted.json``, read by drivers and workers."""

from __future__ import annotations

import json
import os
import socket
import uuid
from dataclasses import asdict, dataclass, field

from corpora.errors import FarspanError
from corpora.storage import files
from corpora.storage.files import read_bytes, write_bytes
from pipelines.engine.paths import WORK

_NAME = "submitted.json"


@dataclass(frozen=True)
class Submission:
    """A job on an engine.

    Attributes:
        runner: e.g. ``FlinkRunner``.
        name: of the job, as the engine shows it.
        attempt: unique; workers work for the attempt of the record alone.
        job: the engine's id of the job; empty until it has given one.
        endpoint: ``host:port`` of the job service.
        flink: address of Flink's REST service; empty for other engines.
        driver: ``host:pid`` of the process that submitted it.
    """

    runner: str
    name: str
    attempt: str = field(default_factory=lambda: uuid.uuid4().hex)
    job: str = ""
    endpoint: str = ""
    flink: str = ""
    driver: str = field(default_factory=lambda: f"{socket.gethostname()}:{os.getpid()}")

    def __str__(self) -> str:
        place = self.flink or self.endpoint
        return f"job {self.name} of {self.runner}" + (f" at {place}" if place else "")

    def write(self, output: str) -> None:
        """Write this record for the job in ``output``."""
        write_bytes(_path(output), json.dumps(asdict(self), indent=2).encode())


def read_submission(output: str) -> Submission | None:
    """Return the record of the job in ``output``; None if no engine has it.

    Raises:
        FarspanError: the record is damaged.
    """
    path = _path(output)
    try:
        data = read_bytes(path)
    except FileNotFoundError:
        return None
    try:
        return Submission(**json.loads(data))
    except (TypeError, ValueError) as error:
        raise FarspanError(
            f"{path}: does not say which engine works here ({error}); see that none does, and delete it"
        ) from error


def forget(output: str) -> None:
    """Delete the record, so that remaining workers of the job start no other task."""
    files.delete([_path(output)])


def require_current(output: str, attempt: str) -> None:
    """Refuse to work for a job that was cancelled, or submitted again.

    Raises:
        FarspanError: the record names another attempt, or is gone.
    """
    current = read_submission(output)
    if current is None or current.attempt != attempt:
        raise FarspanError(f"{output}: this job was cancelled, or begun again; its workers stop")


def _path(output: str) -> str:
    return os.path.join(output, WORK, _NAME)
