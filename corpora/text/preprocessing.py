"""Pure functions text -> text that a source may need before it is tokenised; chosen by name (``STEPS``)."""

from __future__ import annotations

import re
from collections.abc import Callable

# a marker may run over a few lines, with the title in it; older files have a "small print" block instead
_GUTENBERG_START = re.compile(
    r"\*\*\* ?START OF (?:THE|THIS) PROJECT GUTENBERG E(?:BOOK|TEXT)[^*]{0,600}\*\*\*[^\n]*"
    r"|^\*?END\*?[^\n]{0,10}THE SMALL PRINT![^\n]*",
    re.IGNORECASE | re.MULTILINE,
)
_GUTENBERG_END = re.compile(
    r"\*\*\* ?END OF (?:THE|THIS) PROJECT GUTENBERG E(?:BOOK|TEXT)"
    r"|^End of (?:The )?Project Gutenberg(?:'s|’s)? ",
    re.IGNORECASE | re.MULTILINE,
)
_LINE_END = re.compile(r"\r\n?")
_SPACES = re.compile(r"[ \t\u00a0]+")
_SPACE_AT_LINE_EDGE = re.compile(r"(?m)^ | $")
_BLANK_LINES = re.compile(r"\n{3,}")
_WRAP = re.compile(r"(?<=[^\s\n])[ \t]*\n(?=[^\s])")
_SUBTITLE_MARKS = re.compile(r"</?(?:i|b|u|s|font)(?: [^<>\n]{0,100})?>|\{\\[^{}\n]{0,60}\}|[♪♫]", re.IGNORECASE)


def strip_gutenberg(text: str) -> str:
    """Without the header and the licence that Project Gutenberg puts round a book.

    The book is what stands between the markers ``*** START OF ...`` and ``*** END OF ...`` (before 2003: after the
    "small print" and before ``End of Project Gutenberg's ...``); a missing marker leaves that side as it is.
    """
    start = _GUTENBERG_START.search(text)
    first = start.end() if start else 0
    end = _GUTENBERG_END.search(text, first)
    return text[first : end.start() if end else len(text)].strip("\r\n")


def join_lines(text: str) -> str:
    """Paragraphs of hard-wrapped text in one line each.

    Paragraphs are parted by blank lines; a line that begins with white space (verse, tables, a paragraph's indent)
    stays a line of its own.
    """
    return _WRAP.sub(" ", _LINE_END.sub("\n", text))


def squeeze_blank(text: str) -> str:
    """At most one space between words and one blank line between paragraphs; none at the edges."""
    text = _SPACES.sub(" ", _LINE_END.sub("\n", text))
    return _BLANK_LINES.sub("\n\n", _SPACE_AT_LINE_EDGE.sub("", text)).strip()


def strip_subtitle_marks(text: str) -> str:
    """Without what tells a player how to show a subtitle: ``<i>``, ``<font ...>``, ``{\\an8}``, music notes."""
    return _SUBTITLE_MARKS.sub("", text)


STEPS: dict[str, Callable[[str], str]] = {
    "strip-gutenberg": strip_gutenberg,
    "join-lines": join_lines,
    "squeeze-blank": squeeze_blank,
    "strip-subtitle-marks": strip_subtitle_marks,
}
