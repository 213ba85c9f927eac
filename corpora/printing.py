"""Safe printing of untrusted text on a terminal."""

from __future__ import annotations

import re

# C0, DEL and C1 controls (among them ESC, which starts terminal commands) except tab and line feed; Unicode's
# direction marks, embeddings, overrides and isolates, which change the order in which text is shown.
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def printable(text: str) -> str:
    """Return ``text`` with control characters escaped as in Python (``\\x1b``), so that a terminal obeys none."""
    return _CONTROLS.sub(lambda found: found[0].encode("unicode_escape").decode(), text)
