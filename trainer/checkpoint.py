"""Checkpoints: folders that exist whole or not at all, and are checked byte by byte before they are believed.

``checkpoints/step-00000030/`` holds ``model.pt``, ``optimizer.pt`` and, written last, ``checkpoint.json`` with the
sha256 of both, the step, and the identity of the run: what has to be equal for the run to be continued.
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
_MANIFEST = "checkpoint.json"
_FILES = LocalFiles()


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
    directory: Path, step: int, samples: int, identity: Mapping[str, Any], states: Mapping[str, Any], keep: int
) -> Path:
    """Write the checkpoint of ``step``, then delete all but the newest ``keep``.

    Args:
        directory: of all checkpoints of the run.
        step, samples, identity: as in ``Checkpoint``.
        states: the state dictionaries ``model`` and ``optimizer``.
        keep: at least 1; the one just written always stays.

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
        "files": files,
    }
    write_bytes(_FILES, str(temporary / _MANIFEST), json.dumps(manifest, indent=1).encode())
    _sync_folder(temporary)
    if path.exists():  # only a damaged one can be in the way: a whole one would have been continued from
        os.replace(path, temporary_name(str(path)))
    os.replace(temporary, path)
    _sync_folder(directory)
    _sweep(directory)
    for old in _newest_first(directory)[keep:]:
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
    paths = _newest_first(directory)
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
        manifest = json.loads((path / _MANIFEST).read_bytes())
        files = manifest["files"].items()
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        return f"{_MANIFEST}: {error}"
    if (manifest.get("format"), manifest.get("format_version")) != (FORMAT, VERSION):
        raise FarspanError(
            f"{path}: format {manifest.get('format')!r} version {manifest.get('format_version')!r}; this farspan reads "
            f"{FORMAT!r} version {VERSION}; use the farspan that wrote it"
        )
    for name, facts in files:
        file = path / name
        if not file.is_file():
            return f"{name} is missing"
        if file.stat().st_size != facts["bytes"]:
            return f"{name} has {file.stat().st_size} bytes, not {facts['bytes']}"
        with file.open("rb") as opened:
            if file_digest(opened, "sha256").hexdigest() != facts["sha256"]:
                return f"{name} has another sha256 than was written"
    return None


def _save(path: Path, state: Any) -> dict[str, Any]:
    with _FILES.create(str(path)) as file:
        counted = CountingHash(file)
        torch.save(state, counted)  # type: ignore[arg-type]
    return {"bytes": counted.bytes, "sha256": counted.sha256()}


def _load(path: Path) -> Checkpoint:
    manifest = json.loads((path / _MANIFEST).read_bytes())
    try:
        states = {
            name: torch.load(path / f"{name}.pt", map_location="cpu", weights_only=True)
            for name in ("model", "optimizer")
        }
    except UnpicklingError as error:
        raise FarspanError(
            f"{path} holds more than tensors and numbers ({error}); use a checkpoint of farspan"
        ) from None
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


def _newest_first(directory: Path) -> list[Path]:
    found = [path for path in directory.glob("step-*") if path.name[5:].isdigit()]
    return sorted(found, key=lambda path: int(path.name[5:]), reverse=True)


def _sync_folder(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
