"""Plain text with a document on each line."""

from __future__ import annotations

from corpora.readers.blocks import Reader
from corpora.readers.formats.text import read_each_line
from corpora.readers.streams import plan_lines

READER = Reader(plan_lines, read_each_line)
