"""PubMed, in the layout of arXiv. Source: as in ``arxiv``."""

from __future__ import annotations

from corpora.readers.tasks import arxiv

READER = arxiv.READER
