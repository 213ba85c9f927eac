"""PG19: a plain text file for each book. Source: Rae et al. 2019, "Compressive Transformers", section 4."""

from __future__ import annotations

from dataclasses import replace

from corpora.readers.formats import text

READER = replace(text.READER, suffixes=(), published=True, beside=r"metadata\.csv")
