"""Jobs that make an artefact from another one, their parent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from typing import Any

from corpora.errors import FarspanError
from corpora.storage.manifest import Manifest
from corpora.storage.manifest_file import manifest_sha256, read_manifest
from corpora.storage.origins import relative_path
from corpora.storage.shards import StoredShard, stored_shards
from pipelines.engine.artefacts import absolute, inherit_tokenizer, lineage, parent_entry
from pipelines.engine.job import Job, Stage


@dataclass(frozen=True)
class Parent:
    """A finished artefact that a job reads.

    Attributes:
        folder: absolute.
        manifest: its manifest.
    """

    folder: str
    manifest: Manifest

    @classmethod
    def read(cls, folder: str, format: str) -> Parent:
        """Read and check the manifest of an artefact."""
        folder = absolute(folder)
        return cls(folder, read_manifest(folder, format))

    @property
    def shards(self) -> list[StoredShard]:
        return stored_shards(self.folder, self.manifest)

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
    expected = manifest_sha256(documents.folder)
    if lineage(neighbours.folder, "farspan.documents") not in (None, expected):
        raise FarspanError(
            f"{neighbours.folder}: its neighbours are those of other documents than {documents.folder}; "
            "give --documents the artefact that the vectors were made from"
        )
    return neighbours


def derived_job(
    output: str,
    parent: Parent,
    stages: Sequence[Stage],
    *,
    format: str,
    config: Mapping[str, Any],
    seed: int,
    rows_per_batch: int,
    work_bytes: int,
    special_tokens: Mapping[str, int] | None = None,
    inputs: Sequence[Mapping[str, Any]] = (),
    error_budget: float = 1.0,
    repeated_links: Mapping[str, int] | None = None,
    others: Mapping[str, str] | None = None,
) -> Job:
    """Declare the job that makes ``output``, an artefact with the parent's tokenizer.

    Args:
        format, config, seed, rows_per_batch, special_tokens, inputs: of the artefact's manifest.
        work_bytes: size of the input, by which the number of workers is chosen.
        error_budget, repeated_links: of a job that also reads raw files.
        others: role -> folder of the artefacts beside the parent that it is made from.
    """
    head = Manifest(
        format=format,
        config={**config, **_terms(parent.manifest)},
        seed=seed,
        rows_per_batch=rows_per_batch,
        tokenizer=parent.manifest.tokenizer,
        special_tokens=special_tokens or {},
        inputs=tuple(inputs),
        parent=parent_entry(output, parent.folder),
    )
    tokenizer = partial(inherit_tokenizer, parent.folder, parent.manifest)
    folders = {"parent": parent.folder, **(others or {})}
    origins = {role: relative_path(output, folder) for role, folder in folders.items()}
    return Job(output, head, stages, tokenizer, work_bytes, error_budget, repeated_links or {}, origins)


def _terms(parent: Manifest) -> dict[str, Any]:
    """Licence and languages of the text, as far as ``farspan documents`` was told."""
    return {name: parent.config[name] for name in ("license", "language") if name in parent.config}
