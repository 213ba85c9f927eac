"""Writing of the card of an artefact, with its ancestors and its first row as an example."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from corpora.errors import FarspanError
from corpora.printing import printable
from corpora.storage import files
from corpora.storage.files import write_bytes
from corpora.storage.manifest import Manifest
from corpora.storage.manifest_file import CARD, NAME, find_parent, manifest_sha256, read_manifest
from corpora.storage.shards import open_shard
from corpora.tokenizers.load import load_tokenizer_of
from corpora.tokenizers.protocol import Tokenizer
from objectives.api.masks import IN_TARGET
from pipelines.cards.card import card

_TEXT = 600  # maximum characters of a text
_ITEMS = 8  # maximum items of a list
_AROUND = 40  # tokens around the first hidden span


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
        row, corpus_row = _first_row(folder, shard.name), None
        if manifest.format == "farspan.masks" and (corpus := find_parent(folder)):
            shards = read_manifest(corpus).shards  # each draw of the masks has as many
            corpus_row = _first_row(corpus, shards[manifest.shards.index(shard) % len(shards)].name)
        return row_example(row, load_tokenizer_of(folder), corpus_row)
    except (FarspanError, OSError, pa.ArrowInvalid):
        return None  # a long job must not fail because of its card


def row_example(row: Mapping[str, Any], tokenizer: Tokenizer, corpus_row: Mapping[str, Any] | None = None) -> str:
    """Write a row as lines ``column: value``, with lists and texts shortened, and ids also as text.

    For a row of masks, the text of ``corpus_row`` is shown with the target spans in ⟦ ⟧.
    """
    lines = [f"{name}: {_value(value)}" for name, value in row.items()]
    for name in ("tokens", "query"):
        if row.get(name) and "text" not in row:  # a prediction has its text, and its ids include special tokens
            lines += ["", f"{name} as text:", _text(tokenizer, row[name])]
    for number, tokens in enumerate((row.get("targets") or ())[:1]):
        lines += ["", f"target {number} as text:", _text(tokenizer, tokens)]
    if corpus_row is not None:
        lines += ["", "text of the row, with the targets in ⟦ ⟧:", _mark_targets(tokenizer, row, corpus_row)]
    return "\n".join(lines)


def _first_row(folder: str, shard: str) -> dict[str, Any]:
    return open_shard(os.path.join(folder, "shards", shard)).get_batch(0).slice(0, 1).to_pylist()[0]


def _value(value: Any) -> str:
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, list):
        shown = ", ".join(map(_value, value[:_ITEMS]))
        more = f", ... ({len(value):,} in all)" if len(value) > _ITEMS else ""
        return f"[{shown}{more}]"
    if isinstance(value, float):
        return f"{value:.4g}"
    text = printable(str(value)).replace("\n", "\\n")
    return text if len(text) <= _TEXT else text[:_TEXT] + " ..."


def _text(tokenizer: Tokenizer, ids: Sequence[int]) -> str:
    text = printable(tokenizer.decode(np.asarray(ids[:_TEXT], np.int64)))
    return text[:_TEXT] + " ..." if len(text) > _TEXT or len(ids) > _TEXT else text


def _mark_targets(tokenizer: Tokenizer, row: Mapping[str, Any], corpus_row: Mapping[str, Any]) -> str:
    """Return the text around the first target span, with target spans in brackets."""
    tokens = np.asarray(corpus_row["tokens"], np.int64)
    spans = [
        (start, start + length)
        for start, length, flags in zip(row["span_starts"], row["span_lengths"], row["span_flags"], strict=True)
        if flags & IN_TARGET
    ]
    first = max((spans[0][0] if spans else 0) - _AROUND, 0)
    pieces, place, last = ["... " if first else ""], first, min(first + 4 * _AROUND, len(tokens))
    for start, stop in spans:
        if start >= last:
            break
        pieces += [tokenizer.decode(tokens[place:start]), "⟦", tokenizer.decode(tokens[start:stop]), "⟧"]
        place = stop
    pieces += [tokenizer.decode(tokens[place : max(place, last)]), " ..." if last < len(tokens) else ""]
    text = printable("".join(pieces))
    return text if len(text) <= 2 * _TEXT else text[: 2 * _TEXT] + " ..."
