"""Preprocessing steps: pure functions text -> text, selected by name (``STEPS``)."""

from __future__ import annotations

import re
from collections.abc import Callable

# a marker includes the title and may have several lines; older files have a "small print" block instead
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
_SPEECH_MARKS = re.compile(r"\{ ?(?:vocalsound|disfmarker|pause|nonvocalsound|gap) ?\} ?")


def strip_gutenberg(text: str) -> str:
    """Remove Project Gutenberg's header and licence from a book.

    The book is between the markers ``*** START OF ...`` and ``*** END OF ...`` (before 2003: after the "small print"
    and before ``End of Project Gutenberg's ...``). If a marker is missing, nothing is removed on that side.
    """
    start = _GUTENBERG_START.search(text)
    first = start.end() if start else 0
    end = _GUTENBERG_END.search(text, first)
    return text[first : end.start() if end else len(text)].strip("\r\n")


def join_lines(text: str) -> str:
    """Join the lines of each paragraph of hard-wrapped text.

    Blank lines separate paragraphs. A line that starts with white space (verse, tables, an indented first line) is not
    joined to the line before it.
    """
    return _WRAP.sub(" ", _LINE_END.sub("\n", text))


def squeeze_blank(text: str) -> str:
    """Reduce white space to single spaces between words and single blank lines between paragraphs; strip the ends."""
    text = _SPACES.sub(" ", _LINE_END.sub("\n", text))
    return _BLANK_LINES.sub("\n\n", _SPACE_AT_LINE_EDGE.sub("", text)).strip()


def strip_subtitle_marks(text: str) -> str:
    """Remove display markup of subtitles: ``<i>``, ``<font ...>``, ``{\\an8}``, music notes."""
    return _SUBTITLE_MARKS.sub("", text)


def strip_speech_marks(text: str) -> str:
    """Remove the marks of speech recognition in meetings: ``{vocalsound}``, ``{disfmarker}``, ``{pause}``, ``{gap}``.

    Source: Yale-LILY/QMSum: data_process.ipynb, which keeps ``{comment}``.
    """
    return _SPEECH_MARKS.sub("", text)


STEPS: dict[str, Callable[[str], str]] = {
    "strip-gutenberg": strip_gutenberg,
    "join-lines": join_lines,
    "squeeze-blank": squeeze_blank,
    "strip-subtitle-marks": strip_subtitle_marks,
    "strip-speech-marks": strip_speech_marks,
}
