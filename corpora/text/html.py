"""Extraction of the text of web pages."""

from __future__ import annotations

import re
from html.parser import HTMLParser

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
    """Collects the text of a page.

    Attributes:
        parts: pieces of the text and of white space.
        preformatted: those inside ``<pre>``.
    """

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.parts: list[str] = []
        self.preformatted: list[str] = []
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
