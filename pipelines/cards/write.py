"""Writing of the card of an artefact."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator

import pyarrow as pa

from corpora.errors import FarspanError
from corpora.storage import files
from corpora.storage.files import write_bytes
from corpora.storage.manifest import Manifest
from corpora.storage.manifest_file import CARD, NAME, manifest_sha256, read_manifest
from corpora.storage.origins import find_parent
from corpora.storage.shards import open_shard
from corpora.tokenizers.load import load_tokenizer_of
from pipelines.cards.card import card
from pipelines.cards.example import first_row, row_example


def write_card(folder: str, manifest: Manifest) -> None:
    """Write ``README.md`` into the folder of an artefact with finished shards.

    The manifest does not list the card, because it may be edited.
    """
    digest = hashlib.sha256(manifest.to_json()).hexdigest()
    ancestors = list(find_ancestors(folder, manifest))
    write_bytes(os.path.join(folder, CARD), card(manifest, ancestors, find_example(folder, manifest), digest).encode())


def find_ancestors(folder: str, manifest: Manifest) -> Iterator[tuple[str, Manifest | None]]:
    """Yield sha256 and contents of the manifests of parent, grandparent and so on.

    The first one that cannot be found is yielded with None instead of its contents, and is the last.
    """
    while manifest.parent is not None:
        expected, above = manifest.parent["manifest_sha256"], find_parent(folder)
        if above is None or not files.exists(os.path.join(above, NAME)) or manifest_sha256(above) != expected:
            yield expected, None
            return
        folder, manifest = above, read_manifest(above)
        yield expected, manifest


def find_example(folder: str, manifest: Manifest) -> str | None:
    """Return the first row as text, for masks with the corpus row; None if there is no row or it cannot be read."""
    shard = next((shard for shard in manifest.shards if shard.rows), None)
    if shard is None:
        return None
    try:
        row = first_row(open_shard(os.path.join(folder, "shards", shard.name)))
        if row is None:
            return None
        corpus_row = None
        if manifest.format == "farspan.masks" and (corpus := find_parent(folder)):
            number = manifest.shards.index(shard)
            shards = read_manifest(corpus).shards
            corpus_row = first_row(open_shard(os.path.join(corpus, "shards", shards[number % len(shards)].name)))
        return row_example(row, load_tokenizer_of(folder), corpus_row)
    except (FarspanError, OSError, pa.ArrowInvalid):
        return None  # a long job must not fail because of its card
