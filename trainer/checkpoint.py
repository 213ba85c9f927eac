"""Checkpoints: folders that exist whole or not at all, and are checked byte by byte before they are believed.

``checkpoints/step-00000030/`` holds ``model.pt``, ``optimizer.pt`` and, written last, ``checkpoint.json`` with the
sha256 of both, the step, the identity of the run (what has to be equal for the run to be continued), and the vocabulary
(what the model's ids mean to those who use it without its data).
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import file_digest
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch

from corpora.errors import FarspanError
from corpora.files import CountingHash, LocalFiles, temporary_name, write_bytes

FORMAT, VERSION = "farspan.checkpoint", 1
MANIFEST = "checkpoint.json"
_FILES = LocalFiles()


@dataclass(frozen=True, kw_only=True)
class CheckpointConfig:
    """When checkpoints are written, and which stay.

    Attributes:
        every: steps between checkpoints; there is always one at the end.
        keep: newest ones that stay.
        keep_every: those of steps that are multiples of this stay too; None for no others.
        asynchronous: training goes on while a checkpoint is written.

    Raises:
        FarspanError: counts below 1.
    """

    every: int = 1000
    keep: int = 3
    keep_every: int | None = None
    asynchronous: bool = True

    def __post_init__(self) -> None:
        for name in ("every", "keep", "keep_every"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise FarspanError(f"checkpoint.{name} is {value}; it must be at least 1")


class DamagedError(Exception):
    """A file of a checkpoint is not as it was written."""


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint that was read and found whole.

    Attributes:
        path: its folder.
        step: finished updates.
        samples: samples consumed by them, the whole state of the data.
        identity: of the run, nested JSON values.
        model, optimizer: state dictionaries on the CPU.
    """

    path: Path
    step: int
    samples: int
    identity: Mapping[str, Any]
    model: dict[str, Any]
    optimizer: dict[str, Any]


def save_checkpoint(
    directory: Path,
    step: int,
    samples: int,
    identity: Mapping[str, Any],
    states: Mapping[str, Any],
    keep: int,
    vocabulary: Mapping[str, Any] | None = None,
) -> Path:
    """Write the checkpoint of ``step``, then delete all but the newest ``keep``.

    Args:
        directory: of all checkpoints of the run.
        step, samples, identity: as in ``Checkpoint``.
        states: the state dictionaries ``model`` and ``optimizer``.
        keep: at least 1; the one just written always stays.
        vocabulary: of ``trained_model.vocabulary_of``; decides nothing about the run.

    Returns:
        Its folder.
    """
    directory.mkdir(parents=True, exist_ok=True)
    _sweep(directory)
    path = directory / f"step-{step:08d}"
    temporary = Path(temporary_name(str(path)))
    files = {f"{name}.pt": _save(temporary / f"{name}.pt", state) for name, state in states.items()}
    manifest = {
        "format": FORMAT,
        "format_version": VERSION,
        "step": step,
        "samples": samples,
        "identity": identity,
        "vocabulary": vocabulary,
        "files": files,
    }
    write_bytes(_FILES, str(temporary / MANIFEST), json.dumps(manifest, indent=1).encode())
    _sync_folder(temporary)
    if path.exists():  # only a damaged one can be in the way: a whole one would have been continued from
        os.replace(path, temporary_name(str(path)))
    os.replace(temporary, path)
    _sync_folder(directory)
    _sweep(directory)
    for old in newest_first(directory)[keep:]:
        if old != path:
            shutil.rmtree(old)
    return path


def load_newest(directory: Path, identity: Mapping[str, Any], report: Callable[[str], None]) -> Checkpoint | None:
    """The newest checkpoint that is whole, or None where there is none at all.

    Args:
        directory: of all checkpoints of the run.
        identity: of the run that wants to go on.
        report: told about each damaged checkpoint that is passed over.

    Raises:
        FarspanError: every checkpoint is damaged, or the newest whole one belongs to another run.
    """
    paths = newest_first(directory)
    for path in paths:
        fault = find_fault(path)
        if fault is None:
            checkpoint = _load(path)
            _require_same(checkpoint, json.loads(json.dumps(identity)))
            return checkpoint
        report(f"checkpoint {path} is damaged ({fault}); trying the one before it")
    if paths:
        raise FarspanError(
            f"all {len(paths)} checkpoints in {directory} are damaged; restore one, or delete the folder to start anew"
        )
    return None


def find_fault(path: Path) -> str | None:
    """What is wrong with a checkpoint's files, or None.

    Raises:
        FarspanError: a format or version that this farspan does not know.
    """
    try:
        for name, facts in read_manifest(path)["files"].items():
            check_file(path / name, facts)
    except DamagedError as error:
        return str(error)
    return None


def read_manifest(path: Path) -> dict[str, Any]:
    """The ``checkpoint.json`` of a checkpoint.

    Raises:
        DamagedError: there is none, or it cannot be read.
        FarspanError: a format or version that this farspan does not know.
    """
    try:
        manifest = json.loads((path / MANIFEST).read_bytes())
        found = manifest["format"], manifest["format_version"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DamagedError(f"{MANIFEST}: {error}") from None
    if found != (FORMAT, VERSION):
        raise FarspanError(
            f"{path}: format {found[0]!r} version {found[1]!r}; this farspan reads {FORMAT!r} version {VERSION}; use "
            "the farspan that wrote it"
        )
    return manifest


def check_file(file: Path, facts: Mapping[str, Any]) -> None:
    """Compare a file with its ``bytes`` and ``sha256`` in the manifest.

    Raises:
        DamagedError: it is missing or another.
    """
    if not file.is_file():
        raise DamagedError(f"{file.name} is missing")
    if file.stat().st_size != facts["bytes"]:
        raise DamagedError(f"{file.name} has {file.stat().st_size} bytes, not {facts['bytes']}")
    with file.open("rb") as opened:
        if file_digest(opened, "sha256").hexdigest() != facts["sha256"]:
            raise DamagedError(f"{file.name} has another sha256 than was written")


def load_state(file: Path) -> dict[str, Any]:
    """A state dictionary, on the CPU.

    Raises:
        FarspanError: it holds more than tensors and numbers.
    """
    try:
        return torch.load(file, map_location="cpu", weights_only=True)
    except UnpicklingError as error:
        raise FarspanError(
            f"{file.parent} holds more than tensors and numbers ({error}); use a checkpoint of farspan"
        ) from None


def newest_first(directory: Path) -> list[Path]:
    """The checkpoints in a directory, whole or not."""
    found = [path for path in directory.glob("step-*") if path.name[5:].isdigit()]
    return sorted(found, key=lambda path: int(path.name[5:]), reverse=True)


def _save(path: Path, state: Any) -> dict[str, Any]:
    with _FILES.create(str(path)) as file:
        counted = CountingHash(file)
        torch.save(state, counted)  # type: ignore[arg-type]
    return {"bytes": counted.bytes, "sha256": counted.sha256()}


def _load(path: Path) -> Checkpoint:
    manifest = read_manifest(path)
    states = {name: load_state(path / f"{name}.pt") for name in ("model", "optimizer")}
    return Checkpoint(path, manifest["step"], manifest["samples"], manifest["identity"], **states)


def _require_same(checkpoint: Checkpoint, identity: Mapping[str, Any]) -> None:
    theirs, ours = _flat(checkpoint.identity), _flat(identity)
    changed = [name for name in sorted(theirs | ours) if theirs.get(name) != ours.get(name)]
    if changed:
        lines = [f"  {name}: checkpoint {theirs.get(name)!r}, now {ours.get(name)!r}" for name in changed]
        raise FarspanError(
            f"{checkpoint.path} belongs to another run:\n" + "\n".join(lines) + "\n"
            "restore these values to continue it, or set run.directory to a new folder"
        )


def _flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in values.items():
        flat |= _flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return flat


def _sweep(directory: Path) -> None:
    """Delete what a killed writer left behind, and what was put aside."""
    for abandoned in directory.glob("*.tmp-*"):
        shutil.rmtree(abandoned)


def _sync_folder(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
