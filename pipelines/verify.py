"""``farspan verify``: the check that fits an artefact's format."""

from __future__ import annotations

from corpora.files import LocalFiles
from corpora.manifest import read_manifest
from corpora.verification import verify
from objectives.verification import verify_masks


def verify_artefact(folder: str, corpus: str | None = None) -> list[str]:
    """Every problem of a documents, corpus or mask artefact on local disk.

    Args:
        corpus: where a mask set's corpus lies, if not where its manifest says.

    Raises:
        FarspanError: there is no artefact to check.
    """
    if read_manifest(LocalFiles(), folder).format == "farspan.masks":
        return verify_masks(folder, corpus)
    return verify(folder)
