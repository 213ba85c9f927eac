"""Text of others on a terminal."""

from __future__ import annotations

import re

# C0, DEL and C1 (among them ESC, which begins a terminal's commands), but for tab and line feed; marks, embeddings,
# overrides and isolates of direction, which show text in another order than it has.
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def printable(text: str) -> str:
    """``text`` with control characters written as in Python (``\\x1b``), so that a terminal shows and obeys none."""
    return _CONTROLS.sub(lambda found: found[0].encode("unicode_escape").decode(), text)
