"""Multi-News: clusters of articles in one text, with a separator between or after them.

Read from source lines (``.src``, ``.txt``), or from field ``document`` of JSON lines, Parquet or Arrow files. Raw and
Hugging Face versions part articles by ``|||||``, preprocessed ones by ``story_separator_special_tag``; both write
``NEWLINE_CHAR`` for a line end. Source: Fabbri et al. 2019, "Multi-News".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from types import ModuleType

from corpora.readers import arrow, jsonl, parquet, text
from corpora.readers.blocks import BlockBuilder
from corpora.readers.records import Cut, Range
from corpora.readers.streams import plan_lines
from corpora.storage.files import Files

_SEPARATOR = re.compile(r"\|\|\|\|\||story_separator_special_tag")
_NEWLINE = re.compile(r" ?NEWLINE_CHAR ?")
_TABLES: dict[str, ModuleType] = {".parquet": parquet, ".arrow": arrow, ".feather": arrow}
_LINES = (".json", ".jsonl", ".ndjson")


def plan(path: str, files: Files, target_bytes: int) -> list[Cut]:
    table = _TABLES.get(_suffix(path))
    cut: Callable[[str, Files, int], list[Cut]] = table.plan if table else plan_lines
    return cut(path, files, target_bytes)


def read(piece: Range, files: Files, block: BlockBuilder) -> Iterator[int]:
    """Each record or line is a cluster."""
    block.split = split_articles
    suffix = _suffix(piece.path)
    if suffix in _TABLES:
        return _TABLES[suffix].read(piece, files, block)
    if suffix in _LINES:
        return jsonl.read(piece, files, block)
    return text.read_each_line(piece, files, block)


def fields(path: str, files: Files) -> dict[str, int]:
    suffix = _suffix(path)
    if suffix in _TABLES:
        return _TABLES[suffix].fields(path, files)
    return jsonl.fields(path, files) if suffix in _LINES else {}


def split_articles(cluster: str) -> list[str]:
    """The articles of a cluster. A separator at the very end ends the last article and begins none."""
    articles = [_NEWLINE.sub("\n", article).strip() for article in _SEPARATOR.split(cluster)]
    return articles[:-1] if len(articles) > 1 and not articles[-1] else articles


def _suffix(path: str) -> str:
    name = re.sub(r"\.(gz|bz2|xz|zst)$", "", path.lower())
    return "." + name.rpartition(".")[2]
