"""Artefacts that jobs read: the parent of a derived one, its tokenizer and its lineage."""

from __future__ import annotations

import io
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import accumulate
from typing import Any

from corpora.errors import FarspanError
from corpora.storage import files
from corpora.storage.files import read_bytes, write_bytes
from corpora.storage.manifest import Manifest
from corpora.storage.manifest_file import file_info, manifest_sha256, read_manifest, relative_path
from corpora.storage.shards import StoredShard, list_shards
from corpora.tokenizers.load import load_tokenizer_of
from corpora.tokenizers.protocol import Tokenizer
from pipelines.cards.write import find_ancestors
from pipelines.engine.job import Job, Stage


def absolute(path: str) -> str:
    """Absolute path without a slash at the end, for workers whose current folder is another one."""
    return os.path.abspath(path) if files.is_local(path) else path.rstrip("/")


def inherit_tokenizer(parent: str, manifest: Manifest, target: str) -> None:
    """Copy the tokenizer of the artefact ``parent`` into ``target``, if its files are those of the ``manifest``."""
    folder = os.path.join(parent, "tokenizer")
    listed = {name.removeprefix("tokenizer/"): info for name, info in manifest.files.items() if "tokenizer/" in name}
    contents = {os.path.basename(path): read_bytes(path) for path in files.walk(folder)}
    for name in sorted(listed.keys() | contents.keys()):
        if name not in contents or name not in listed or file_info(io.BytesIO(contents[name])) != listed[name]:
            raise FarspanError(
                f"{os.path.join(folder, name)}: not as the manifest says; copy the artefact again, as a whole, or run "
                "the job that made it into an empty folder"
            )
    _write(contents, target)


def save_tokenizer(tokenizer: Tokenizer, target: str) -> None:
    """Save a loaded tokenizer into a folder on any file system."""
    _write(tokenizer.serialized(), target)


def _write(tokenizer: Mapping[str, bytes], target: str) -> None:
    artefact_tokenizer.cache_clear()  # the folder may have held another one, made and deleted by this process
    for name, data in tokenizer.items():
        write_bytes(os.path.join(target, name), data)


@lru_cache(maxsize=4)
def artefact_tokenizer(artefact: str) -> Tokenizer:
    """Load the tokenizer of an artefact, once per process."""
    return load_tokenizer_of(artefact)


def parent_entry(output: str, parent: str) -> Mapping[str, str]:
    """Make the ``parent`` entry of a manifest: the sha256 of the parent's manifest."""
    if parent == output:
        raise FarspanError(f"--output {output}: is the folder that the job reads; give another")
    return {"manifest_sha256": manifest_sha256(parent)}


def tokens_of_split(numbers: Mapping[str, int], split: str) -> int:
    """Tokens of the ``train`` or ``held-out`` documents, from totals of documents or from the counts of one source."""
    held_out = numbers["held_out_tokens"]
    return held_out if split == "held-out" else numbers["tokens"] - held_out


def require_tokens(folder: str, documents: Manifest, split: str) -> int:
    """Count the tokens of the split of the documents in ``folder``; refuse documents without any."""
    if not documents.totals["documents"]:
        raise FarspanError(f"{folder}: holds no document; make the documents from other input")
    tokens = tokens_of_split(documents.totals, split)
    if not tokens:
        raise FarspanError(f"{folder}: no {split} documents; make them with another --held-out share")
    return tokens


@dataclass(frozen=True)
class Parent:
    """A finished artefact that a job reads."""

    folder: str  # absolute
    manifest: Manifest

    @classmethod
    def read(cls, folder: str, format: str) -> Parent:
        """Read and check the manifest of an artefact."""
        folder = absolute(folder)
        return cls(folder, read_manifest(folder, format))

    @property
    def shards(self) -> list[StoredShard]:
        return list_shards(self.folder, self.manifest)

    @property
    def vocab_size(self) -> int:
        return int(self.manifest.tokenizer["vocab_size"])

    @property
    def bytes(self) -> int:
        return sum(shard.bytes for shard in self.manifest.shards)

    @property
    def first_rows(self) -> tuple[int, ...]:
        """``(shards + 1,)``: number of each shard's first row in the artefact; the last is the number of all rows."""
        return tuple(accumulate((shard.rows for shard in self.manifest.shards), initial=0))


def read_neighbours(folder: str, documents: Parent) -> Parent:
    """Read neighbours that were found among the given documents."""
    neighbours = Parent.read(folder, "farspan.neighbours")
    lineage = find_ancestors(neighbours.folder, neighbours.manifest)
    made_from = next((sha256 for sha256, one in lineage if one and one.format == "farspan.documents"), None)
    if made_from not in (None, manifest_sha256(documents.folder)):
        raise FarspanError(
            f"{neighbours.folder}: its neighbours are those of other documents than {documents.folder}; "
            "give --documents the artefact that the vectors were made from"
        )
    return neighbours


def declare_derived_job(
    output: str,
    parent: Parent,
    stages: Sequence[Stage],
    *,
    format: str,
    config: Mapping[str, Any],
    seed: int,
    rows_per_batch: int | None = None,
    work_bytes: int | None = None,
    special_tokens: Mapping[str, int] | None = None,
    inputs: Sequence[Mapping[str, Any]] = (),
    others: Mapping[str, str] | None = None,
) -> Job:
    """Declare the job that makes ``output``, an artefact with the parent's tokenizer, by the entries of its manifest.

    Rows per batch and bytes of work are the parent's by default. ``others``: role -> folder of the artefacts beside the
    parent that it is made from.
    """
    # licence and languages of the text, as far as `farspan documents` was told
    terms = {name: parent.manifest.config[name] for name in ("license", "language") if name in parent.manifest.config}
    head = Manifest(
        format=format,
        config={**config, **terms},
        seed=seed,
        rows_per_batch=rows_per_batch or parent.manifest.rows_per_batch,
        tokenizer=parent.manifest.tokenizer,
        special_tokens=special_tokens or {},
        inputs=tuple(inputs),
        parent=parent_entry(output, parent.folder),
    )
    tokenizer = partial(inherit_tokenizer, parent.folder, parent.manifest)
    folders = {"parent": parent.folder, **(others or {})}
    origins = {role: relative_path(output, folder) for role, folder in folders.items()}
    return Job(output, head, stages, tokenizer, parent.bytes if work_bytes is None else work_bytes, origins=origins)
