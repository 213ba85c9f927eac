"""Data sets saved by Hugging Face's ``datasets``: their Arrow files, as chosen by ``corpora.readers.huggingface``."""

from __future__ import annotations

from dataclasses import replace

from corpora.readers.formats import arrow

READER = replace(arrow.READER, suffixes=())
