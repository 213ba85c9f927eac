"""Plain text with a document on each line."""

from __future__ import annotations

from functools import partial

from corpora.readers.blocks import Reader
from corpora.readers.formats.text import add_line
from corpora.readers.streams import plan_lines, read_lines

READER = Reader(plan_lines, partial(read_lines, add=add_line))
