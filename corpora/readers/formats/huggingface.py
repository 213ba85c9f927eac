"""Data sets saved by Hugging Face's ``datasets``: Arrow files, beside what ``readers/huggingface.py`` leaves out."""

from __future__ import annotations

from dataclasses import replace

from corpora.readers.formats import arrow

READER = replace(arrow.READER, suffixes=())
