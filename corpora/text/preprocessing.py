"""Preprocessing steps: pure functions text -> text, selected by name (``STEPS``), among them text of web pages."""

from __future__ import annotations

import re
from collections.abc import Callable
from html.parser import HTMLParser

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


_PAGE = re.compile(r"<(?:!doctype\s+html|html|head|body|pre|table)\b", re.IGNORECASE)
_LOOKED_AT = 100_000
_SILENT = frozenset({"script", "style", "title"})
_BLOCKS = re.compile(
    "address|article|blockquote|br|center|d[dlt]|div|footer|form|h[1-6r]|header|li|main|nav|[ou]l|p|pre|section|"
    "t(able|d|h|r)"
)
_TRAILING = re.compile(r"(?<![ \t])[ \t]++\n")  # linear in long runs, because a match starts only where a run starts
_BLANKS = re.compile(r"\s+")


def looks_like_html(text: str) -> bool:
    """Return True if the first 100,000 characters contain a page's tag: ``<html>``, ``<body>``, ``<pre>``, ..."""
    return _PAGE.search(text, 0, _LOOKED_AT) is not None


def html_text(page: str) -> str:
    """Return the visible text of a web page: character references decoded, a line end at every block, scripts left out.

    If most of the text is in ``<pre>``, as in collections of film scripts, only that is kept, with its own lines: the
    rest is navigation. Damaged markup is read as far as possible.
    """
    reader = _Reader()
    reader.feed(page)
    reader.close()
    everything, preformatted = "".join(reader.parts), "".join(reader.preformatted)
    chosen = preformatted if 2 * len(preformatted.split()) > len(everything.split()) else everything
    return re.sub(r"\n{3,}", "\n\n", _TRAILING.sub("\n", chosen)).strip()


class _Reader(HTMLParser):
    """Collects the text of a page."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.parts: list[str] = []  # pieces of the text and of white space
        self.preformatted: list[str] = []  # those inside ``<pre>``
        self._silent = ""  # the open element without visible text
        self._pre = 0  # open <pre> elements

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if self._silent and tag != "body":  # <body> ends an element of the head that was not closed
            return
        self._silent = tag if tag in _SILENT else ""
        self._break(tag)
        self._pre += tag == "pre"

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._break(tag)

    def handle_endtag(self, tag: str) -> None:
        if self._silent:
            self._silent = "" if tag == self._silent else self._silent
            return
        self._break(tag)
        self._pre = max(0, self._pre - (tag == "pre"))

    def handle_data(self, data: str) -> None:
        if self._silent:
            return
        if self._pre:
            self._add(data)
        elif not data.isspace():
            self._add(_BLANKS.sub(" ", data))
        elif self.parts and not self.parts[-1].endswith((" ", "\n")):
            self._add(" ")

    def _break(self, tag: str) -> None:
        if _BLOCKS.fullmatch(tag) and self.parts and (tag == "br" or not self.parts[-1].endswith("\n")):
            self._add("\n")

    def _add(self, text: str) -> None:
        self.parts.append(text)
        if self._pre:
            self.preformatted.append(text)
