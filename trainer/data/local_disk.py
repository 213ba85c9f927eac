"""Local copies of the artefacts that a recipe names."""

from __future__ import annotations

from dataclasses import replace

from corpora.schemas.pairs import documents_folder
from corpora.storage.copies.mirror import mirrored
from corpora.storage.files import is_local
from corpora.storage.manifest_file import read_manifest
from trainer.data.config import SourceConfig


def on_local_disk(source: SourceConfig, cached: bool = False) -> SourceConfig:
    """Replace each remote artefact of a source with a local copy (``corpora.storage.copies.mirror``).

    Args:
        cached: leave artefacts remote, because their shards are fetched into a cache.

    Raises:
        FarspanError: an artefact cannot be copied.
    """
    if cached:
        return source
    documents = source.documents
    if source.pairs and not documents and not is_local(source.pairs):
        documents = documents_folder(source.pairs, read_manifest(source.pairs, "farspan.pairs"))
    return replace(
        source,
        corpus=mirrored(source.corpus),
        masks=source.masks and mirrored(source.masks),
        pairs=source.pairs and mirrored(source.pairs),
        documents=documents and mirrored(documents),
    )
