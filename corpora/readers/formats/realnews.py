"""RealNews: JSON lines with ``text``, ``title``, ``domain``, ``url``; as published (``realnews.tar.gz``) or unpacked.

Source: Zellers et al. 2019, "Defending Against Neural Fake News", appendix A. The text alone is the document.
"""

from __future__ import annotations

from corpora.readers.archives import is_archive, lines_or_archives
from corpora.readers.blocks import Reader
from corpora.readers.formats import jsonl


def _is_lines(name: str) -> bool:
    return name.lower().endswith(jsonl.READER.suffixes)


def fields(path: str) -> dict[str, int]:
    """Return the fields of JSON lines; empty for an archive, whose fields are not known before it is read."""
    return {} if is_archive(path) else jsonl.fields(path)


READER = Reader(*lines_or_archives(_is_lines, jsonl.add), fields, published=True)
