"""The files of a checkpoint and their integrity checks.

``step-00000030/`` holds ``model/`` and ``optimizer/``, safetensors files written by all processes, and, written last,
``checkpoint.json`` with the bytes and sha256 of every file, the step, the identity of the run (the values that must not
change when it is continued), the vocabulary (the meaning of the model's token ids, for use without its data), and the
selection (the evaluations so far, and the best of them).
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Mapping
from hashlib import file_digest
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, TypedDict

from corpora.errors import FarspanError
from corpora.storage.stores.local_disk import temporary_name
from corpora.storage.strict_json import Natural, Sha256, StructureError, decode
from trainer.checkpoint.run_files import DamagedError, read_sealed

FORMAT, VERSION = "farspan.checkpoint", 1
MANIFEST, MODEL, OPTIMIZER = "checkpoint.json", "model", "optimizer"
EXTENSION = "run.extend"


class Facts(TypedDict):
    """The entry of a file in a manifest."""

    bytes: Natural
    sha256: Sha256


class _Selection(TypedDict):
    metric: str | None
    evaluated: Natural
    step: Natural | None
    value: float | None
    since: Natural


class _Manifest(TypedDict):
    step: Natural
    samples: Natural
    identity: Mapping[str, Any]
    vocabulary: Mapping[str, Any]
    selection: _Selection
    files: Mapping[Annotated[str, re.compile(rf"({MODEL}|{OPTIMIZER})/[\w-][\w.-]*")], Facts]


def newest_first(directory: Path) -> list[Path]:
    """The checkpoints in a directory, damaged ones included, newest first."""
    named = (path for path in directory.glob("step-*") if path.name[5:].isdigit())
    return sorted(named, key=step_of, reverse=True)


def checkpoints_in(path: Path) -> list[Path]:
    """The checkpoints of a run's directory or a folder of checkpoints, newest first; a checkpoint itself; else none."""
    if (path / MANIFEST).is_file():
        return [path]
    return newest_first(path / "checkpoints") or newest_first(path)


def step_of(path: Path) -> int:
    """The step that a checkpoint's folder is named after."""
    return int(path.name[5:])


def read_manifest(path: Path) -> dict[str, Any]:
    """The ``checkpoint.json`` of a checkpoint."""
    try:
        manifest = read_sealed(path / MANIFEST)
        found = manifest["format"], manifest["format_version"]
    except (DamagedError, KeyError) as error:
        raise DamagedError(f"{MANIFEST}: {error}") from None
    if found != (FORMAT, VERSION):
        raise FarspanError(
            f"{path}: format {found[0]!r} version {found[1]!r}; this farspan reads {FORMAT!r} version {VERSION}; use "
            "the farspan that wrote it"
        )
    try:
        return {**decode(_Manifest, manifest)}
    except StructureError as error:
        raise DamagedError(f"{MANIFEST}: {error}") from None


def find_fault(path: Path, part: int = 0, parts: int = 1) -> str | None:
    """Describe the first fault in a checkpoint's files; None if there is none."""
    try:
        manifest = read_manifest(path)
        if manifest["step"] != step_of(path):
            raise DamagedError(f"{MANIFEST} belongs to step {manifest['step']}")
        for folder in (MODEL, OPTIMIZER):
            check_nothing_else(path, folder, manifest["files"])
        for name, facts in islice(manifest["files"].items(), part, None, parts):
            check_file(path / name, facts)
    except DamagedError as error:
        return str(error)
    return None


def file_facts(file: Path) -> dict[str, Any]:
    """Bytes and sha256 of a file, as a manifest holds them."""
    with file.open("rb") as opened:
        return {"bytes": file.stat().st_size, "sha256": file_digest(opened, "sha256").hexdigest()}


def check_file(file: Path, facts: Mapping[str, Any]) -> None:
    """Compare a file with its ``bytes`` and ``sha256`` in the manifest."""
    if not file.is_file():
        raise DamagedError(f"{file.name} is missing")
    if file.stat().st_size != facts["bytes"]:
        raise DamagedError(f"{file.name} has {file.stat().st_size} bytes, not {facts['bytes']}")
    if file_facts(file)["sha256"] != facts["sha256"]:
        raise DamagedError(f"{file.name} has another sha256 than the manifest")


def check_nothing_else(path: Path, folder: str, files: Mapping[str, Any]) -> None:
    """Check that a folder of checkpoint ``path`` holds no tensors beside ``files`` of the manifest."""
    others = sorted({f"{folder}/{file.name}" for file in (path / folder).glob("*.safetensors")} - files.keys())
    if others:
        raise DamagedError(f"{others[0]} is not in the manifest")


def require_same_run(path: Path, identity: Mapping[str, Any]) -> None:
    """Compare a checkpoint's identity with that of the run that resumes from it.

    A run may be extended: ``run.extend`` may go on where the checkpoint's ends.
    """
    theirs, ours = _flat(read_manifest(path)["identity"]), _flat(json.loads(json.dumps(identity)))
    extended = ours.get(EXTENSION, [])
    if theirs.get(EXTENSION, []) == extended[: len(theirs.get(EXTENSION, []))]:
        theirs[EXTENSION] = ours[EXTENSION] = extended
    changed = [name for name in sorted(theirs | ours) if theirs.get(name) != ours.get(name)]
    if changed:
        lines = [f"  {name}: checkpoint {theirs.get(name)!r}, now {ours.get(name)!r}" for name in changed]
        raise FarspanError(
            f"{path} belongs to another run:\n" + "\n".join(lines) + "\n"
            "restore these values to continue it, or set run.directory to a new folder"
            + ("; run.extend gives a run more steps" if "run.steps" in changed else "")
        )


def list_outdated(directory: Path, step: int, keep: int, keep_every: int | None) -> list[Path]:
    """The checkpoints to delete once that of ``step`` is complete; it and ``keep - 1`` before it are kept.

    Later ones are kept too. They must be damaged, because a run resumes from its newest undamaged checkpoint, and are
    replaced when the run reaches their steps.
    """
    before = [path for path in newest_first(directory) if step_of(path) < step]
    return [path for path in before[keep - 1 :] if keep_every is None or step_of(path) % keep_every]


def delete(checkpoint: Path) -> None:
    """Rename a checkpoint, then remove it, so that an interruption leaves nothing that looks like a checkpoint."""
    aside = temporary_name(str(checkpoint))
    os.replace(checkpoint, aside)
    remove(Path(aside))


def remove(path: Path) -> None:
    """Remove a folder, or a file in its place."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()


def sync_folder(path: Path) -> None:
    """Flush a folder's entries to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in values.items():
        flat |= _flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return flat
