"""Clusters of related news articles: NewSHead as PRIMERA publishes it, in ``.pt`` files, and the same as JSON.

A file is a list of clusters, or has one cluster per line. A cluster is a list of articles, or an object with such a
list as ``articles`` or ``documents``. An article is a string, or an object with ``text`` (or another ``text_field``).
Source: Gu et al. 2020, "Generating Representative Headlines for News Stories"; Xiao et al. 2022, "PRIMERA", section 3.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

from corpora.readers import json_array
from corpora.readers.blocks import BlockBuilder, Reader
from corpora.readers.records import RAW_BYTES, BadRecord, Cut, DamagedFile, Range
from corpora.storage import files

_LISTS = ("articles", "documents")
_TORCH = (".pt", ".pth")


def plan(path: str, target_bytes: int) -> list[Cut]:
    """Split a JSON file; a file saved by torch is one range."""
    return [Cut(0, 1, files.size(path))] if _is_torch_file(path) else json_array.plan(path, target_bytes)


def read(piece: Range, block: BlockBuilder) -> Iterator[int]:
    """Read each cluster as a record; its place is its offset in a JSON file, or its number in a ``.pt`` file."""
    if not _is_torch_file(piece.path):
        yield from json_array.read(piece, block, lambda block, line: _add(block, line.offset, line.json(), line.data))
        return
    clusters = _load(piece.path)
    for number, cluster in enumerate(clusters):
        try:
            _add(block, number, cluster, b"")
        except BadRecord as bad:
            block.reject(number, bad.reason, str(cluster)[:RAW_BYTES].encode(errors="backslashreplace"), str(bad))
        if block.full:
            yield piece.bytes * number // len(clusters)


def _is_torch_file(path: str) -> bool:
    return path.lower().endswith(_TORCH)


def _load(path: str) -> list[Any]:
    """Load the list in a ``.pt`` file. Only lists, dicts, strings and numbers are allowed: nothing is executed."""
    import torch  # no other part of corpora needs it

    try:
        with files.open(path) as file, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch's text about a hostile file is not helpful to the user
            clusters = torch.load(file, map_location="cpu", weights_only=True)
    except (OSError, EOFError):
        raise
    except Exception as error:  # damaged bytes can raise anything
        reason = str(error).partition("\n")[0][:1000]
        cure = "only lists, dicts, strings and numbers are loaded; save it again as JSON lines"
        raise DamagedFile(OSError(f"{reason}; {cure}"), 0) from error
    if not isinstance(clusters, list):
        raise DamagedFile(OSError(f"a {type(clusters).__name__}, where a list of clusters is expected"), 0)
    return clusters


def _add(block: BlockBuilder, key: int, cluster: Any, raw: bytes) -> None:
    articles = cluster
    if isinstance(cluster, dict):
        articles = next((cluster[name] for name in _LISTS if name in cluster), None)
    if not isinstance(articles, list):
        raise BadRecord("not_a_cluster", f"neither a list of documents nor an object with {' or '.join(_LISTS)}")
    field = block.options.text_field
    record = cluster if isinstance(cluster, dict) else {}
    texts = [article.get(field) if isinstance(article, dict) else article for article in articles]
    block.add(key, {**record, field: texts}, raw)


READER = Reader(plan, read, native_suffixes=_TORCH, published=True)
