"""Checks of a manifest's contents, format by format, without reading rows."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, TypedDict

from corpora.storage.manifest import Manifest
from corpora.storage.strict_json import Natural, Positive, Sha256, StructureError, decode

if TYPE_CHECKING:
    from corpora.tokenizers.protocol import Tokenizer

_TokenId = Annotated[int, range(2**31)]


class _Tokenizer(TypedDict):
    fingerprint: str
    vocab_size: Annotated[int, range(1, 2**31)]
    owned_tokens: Mapping[str, _TokenId]


class _Parent(TypedDict):
    manifest_sha256: Sha256


class _Input(TypedDict):
    path: str
    bytes: Natural


class _Count(TypedDict):
    read: Natural
    written: Natural
    filtered: Natural
    rejected: Natural
    uses: Natural
    tokens: Natural
    held_out_tokens: Natural


class _AnyConfig(TypedDict, total=False):
    compression: str | None
    license: str
    language: tuple[str, ...]


class _OptionalOfCorpus(_AnyConfig, total=False):
    overlap: Natural
    drop_ragged_tail: bool
    max_uses: Natural | None
    mixture: _Mixture
    split: str


class _Mixture(TypedDict, total=False):
    reason: str | None


class _CorpusConfig(_OptionalOfCorpus):
    builder: str
    sequence_length: Positive
    room_per_sequence: Natural
    room_per_document: Natural


class _MasksConfig(_AnyConfig):
    draws: Annotated[int, range(1, 2**31)]
    objective: str
    options: Mapping[str, Any]
    global_attention: str
    tools: Mapping[str, str]


class _VectorsConfig(_AnyConfig):
    dimension: Annotated[int, range(1, 1 << 20)]
    split: str


class _NeighboursConfig(_AnyConfig):
    split: str


class _PairsConfig(_AnyConfig):
    builder: str


class _OptionalOfModel(TypedDict, total=False):
    run: str
    folder: str
    checkpoint: str | None


class _PredictingModel(_OptionalOfModel):
    vocab_size: Annotated[int, range(1, 2**31)]
    sha256: Sha256


class _PredictionsConfig(_AnyConfig):
    split: str
    generation: Mapping[str, Any]
    task: Mapping[str, Any]
    model: _PredictingModel


class _ExportConfig(_AnyConfig):
    to: str
    unit: str


# format -> type of its config, and the totals that readers need
FORMATS: Mapping[str, tuple[Any, tuple[str, ...]]] = {
    "farspan.documents": (_AnyConfig, ("documents", "tokens", "held_out_documents", "held_out_tokens", "max_tokens")),
    "farspan.corpus": (
        _CorpusConfig,
        ("sequences", "tokens", "documents", "parts", "padding", "max_tokens", "max_documents"),
    ),
    "farspan.masks": (_MasksConfig, ("sequences", "max_source_length", "max_target_length")),
    "farspan.vectors": (_VectorsConfig, ("documents", "tokens")),
    "farspan.clusters": (_VectorsConfig, ("documents", "tokens", "clusters", "max_documents")),
    "farspan.neighbours": (_NeighboursConfig, ("documents", "tokens")),
    "farspan.pairs": (_PairsConfig, ("pairs", "targets")),
    "farspan.predictions": (_PredictionsConfig, ("predictions",)),
    "farspan.export": (_ExportConfig, ("rows", "tokens")),
}

_CHILDREN = ("farspan.pairs", "farspan.predictions", "farspan.export")  # formats that need a parent


def fault(manifest: Manifest, finished: bool = True) -> str | None:
    """Describe the first fault of a manifest whose fields have the right types; None if there is none.

    ``finished``: True to check totals, shards and files as well, which are known when all tasks are done.
    """
    if manifest.format not in FORMATS:
        return f"format {manifest.format!r} is unknown; known are {', '.join(FORMATS)}"
    config, totals = FORMATS[manifest.format]
    try:
        decode(_Tokenizer, manifest.tokenizer, "tokenizer")
        decode(config, manifest.config, "config")
        if manifest.parent is not None:
            decode(_Parent, manifest.parent, "parent")
        elif manifest.format in _CHILDREN:
            return f"a manifest of {manifest.format} needs a parent, and this one has none"
        for number, entry in enumerate(manifest.inputs):
            decode(_Input, entry, f"inputs[{number}]")
        for source, count in manifest.counts.items():
            decode(_Count, count, f"counts.{source}")
    except StructureError as error:
        return str(error)
    size = manifest.tokenizer["vocab_size"]
    for name, number in manifest.tokenizer["owned_tokens"].items():
        if number >= size:
            return f"tokenizer.owned_tokens gives {name!r} id {number}, and vocab_size is {size}"
    return _receipts_fault(manifest, totals) if finished else None


def tokenizer_fault(manifest: Manifest, tokenizer: Tokenizer) -> str | None:
    """Describe the first difference between a tokenizer and the one in a manifest; None if there is none."""
    entry = manifest.tokenizer
    for name in ("fingerprint", "vocab_size"):
        if (actual := getattr(tokenizer, name)) != entry[name]:
            return f"{name} {actual!r}, the manifest says {entry[name]!r}"
    for name, number in entry["owned_tokens"].items():
        if (actual := tokenizer.owned_tokens.get(name, number)) != number:
            return f"{name!r} has id {actual}, the manifest says {number}"
    return None


def _receipts_fault(manifest: Manifest, totals: tuple[str, ...]) -> str | None:
    if lacking := [name for name in totals if name not in manifest.totals]:
        return f"totals lack {', '.join(lacking)}"
    count = len(manifest.shards)
    for index, shard in enumerate(manifest.shards):
        if shard.name != (name := f"part-{index:05d}-of-{count:05d}.arrow"):
            return f"shards[{index}].name is {shard.name!r} where {name!r} is needed"
    for path in manifest.files:
        if path != posixpath.normpath(path) or path.startswith(("/", "../")) or path in (".", ".."):
            return f"files names {path!r}, which is not a plain path inside the artefact"
        if path in ("manifest.json", ".farspan.json") or path.startswith(("shards/", "_work/")):
            return f"files names {path!r}, which must not be listed there"
    return None
