"""The folder of a run of ``farspan train``, told apart from artefacts without loading torch."""

from __future__ import annotations

from pathlib import Path

from corpora.errors import FarspanError
from trainer.checkpoint.run_files import RECIPE


def is_run(folder: str) -> bool:
    """Return True for the folder of a run of ``farspan train``."""
    return (Path(folder) / RECIPE).is_file()


def names_update(folder: str, step: int | None, rank: int | None) -> bool:
    """Return True if the folder is a run and the step one of its updates, False for an artefact without a step."""
    run = is_run(folder)
    if step is None and not run:
        if rank is not None:
            raise FarspanError(f"--rank {rank}: {folder} is no run; leave the flag out")
        return False
    if step is None:
        raise FarspanError(f"{folder}: is a run; name the update to show: --step N")
    if not run:
        raise FarspanError(f"--step {step}: {folder} is no run of `farspan train`; give one")
    return True
