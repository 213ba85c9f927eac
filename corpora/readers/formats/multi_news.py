"""Multi-News: clusters of articles in one text, with a separator between or after them.

Clusters are source lines (``.src``, ``.txt``), or the field ``document`` of JSON lines, Parquet or Arrow files. Raw and
Hugging Face versions separate articles by ``|||||``, preprocessed ones by ``story_separator_special_tag``; both write
``NEWLINE_CHAR`` for a line end. Source: Fabbri et al. 2019, "Multi-News".
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from corpora.readers.blocks import BlockBuilder, Reader
from corpora.readers.formats import arrow, jsonl, lines, parquet
from corpora.readers.records import Cut, Range

_SEPARATOR = re.compile(r"\|\|\|\|\||story_separator_special_tag")
_NEWLINE = re.compile(r" ?NEWLINE_CHAR ?")
_FIELDED = (jsonl.READER, parquet.READER, arrow.READER)


def plan(path: str, target_bytes: int) -> list[Cut]:
    """Split a file as the reader of its layout does."""
    return _reader(path).plan(path, target_bytes)


def read(piece: Range, block: BlockBuilder) -> Iterator[int]:
    """Read each record or line as a cluster."""
    block.split = split_articles
    return _reader(piece.path).read(piece, block)


def fields(path: str) -> dict[str, int]:
    """Return the fields as the reader of the file's layout does; none for source lines."""
    look = _reader(path).fields
    return look(path) if look else {}


def split_articles(cluster: str) -> list[str]:
    """Split a cluster into its articles; a separator at the very end does not start another one."""
    articles = [with_line_ends(article) for article in _SEPARATOR.split(cluster)]
    return articles[:-1] if len(articles) > 1 and not articles[-1] else articles


def with_line_ends(text: str) -> str:
    """Replace ``NEWLINE_CHAR`` in an article or summary by line ends, and strip the text."""
    return _NEWLINE.sub("\n", text).strip()


def _reader(path: str) -> Reader:
    name = re.sub(r"\.(gz|bz2|xz|zst)$", "", path.lower())
    suffix = "." + name.rpartition(".")[2]
    return next((reader for reader in _FIELDED if suffix in reader.suffixes), lines.READER)


READER = Reader(plan, read, fields, "document", published=True, beside=r".*\.tgt(\..*)?")
