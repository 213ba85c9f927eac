"""``farspan verify``: check an artefact by its format, or the files of a run."""

from __future__ import annotations

import os
from pathlib import Path

from corpora.errors import FarspanError
from corpora.printing import format_count, printable
from corpora.reporting import result
from corpora.storage.files import is_local
from corpora.storage.manifest_file import read_manifest
from corpora.verify import artefact
from pipelines.inspect.options import Verify
from trainer.checkpoint import run_files
from trainer.checkpoint.files import checkpoints_in, find_fault
from trainer.checkpoint.files import read_manifest as read_checkpoint


def verify(
    folder: str | os.PathLike[str],
    corpus: str | os.PathLike[str] | None = None,
    documents: str | os.PathLike[str] | None = None,
) -> list[str]:
    """List every problem of an artefact, or of the files of a run.

    Args:
        folder: folder of an artefact, a run or a checkpoint.
        corpus: folder of a mask set's corpus, if it has moved since the masks were made.
        documents: folder of the documents of pairs, if it has moved since the pairs were made.

    Raises:
        FarspanError: there is nothing to check, or a checkpoint of another version.
    """
    place = os.fspath(folder)
    if is_local(place) and (checkpoints := checkpoints_in(Path(place))):
        faults = {path: find_fault(path) for path in checkpoints}
        problems = [f"{path.name}: {fault}" for path, fault in faults.items() if fault]
        if (run := Path(place)) == checkpoints[0].parent.parent:
            newest = next((read_checkpoint(path) for path in checkpoints if not faults[path]), None)
            known = (newest or {}).get("vocabulary") or {}
            problems += run_files.find_faults(run, newest["step"] if newest else 0, known.get("tokenizer_fingerprint"))
        return problems
    format = read_manifest(place).format
    if format == "farspan.masks":
        from objectives.api.verify import verify_masks  # which has imports of its own

        return verify_masks(place, None if corpus is None else os.fspath(corpus))
    return artefact.verify(place, None if documents is None else os.fspath(documents))


def command(options: Verify) -> None:
    """Run ``farspan verify``."""
    damaged = 0
    for folder in options.artefact:
        problems = verify(folder, options.corpus, options.documents)
        damaged += bool(problems)
        for message in problems or ["sound"]:
            result(printable(f"{folder}: {message}"), folder=folder, sound=not problems)
    if damaged:
        raise FarspanError(
            f"{damaged} of {format_count(len(options.artefact), 'folder')} damaged; copy or make artefacts again; a "
            "run continues from its newest intact checkpoint"
        )
