"""Pages of rows on a terminal, in colours or without colours in brackets, and as SVG figures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from io import StringIO
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING

from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

from corpora.errors import FarspanError
from corpora.printing import format_count, printable
from corpora.storage.files import write_bytes
from pipelines.pages.page import Block, Column, PageOptions, Reason, RowPage
from pipelines.pages.piece import BRACKETS, KINDS, Kind, Piece, title_and_id

if TYPE_CHECKING:
    from pipelines.pages.update import Update

_BEGINNING = 300  # characters of each document of a pair, unless --width is given
_ALL = 1 << 40
_NONE = ("", "")  # no brackets
_STYLES: Mapping[Kind, str] = {
    "text": "",
    "hidden": "black on yellow",
    "shown": "black on green",
    "replaced": "black on magenta",
    "candidate": "underline",
    "special": "bold cyan",
    "shared": "bold underline",
    "boundary": "dim",
}
_MARKED: Mapping[Kind, str] = {"text": "black on green", "special": "bold red"}

# The colours of a figure, from black to white: backgrounds are light, so that text on them is legible on paper too.
_ON_PAPER = TerminalTheme(
    (255, 255, 255),
    (30, 30, 30),
    [
        (0, 0, 0),
        (190, 30, 30),
        (185, 230, 185),
        (255, 226, 130),
        (30, 60, 160),
        (232, 196, 240),
        (0, 115, 125),
        (90, 90, 90),
    ],
)
# A plain frame: no window, and whatever fixed-width font the reader has.
_SVG = """\
<svg viewBox="8 42 {terminal_width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{ font-family: monospace; font-size: {char_height}px; line-height: {line_height}px; }}
{styles}
</style>
<defs>{lines}</defs>
<rect x="0" y="0" width="{width}" height="{height}" fill="white"/>
<g transform="translate({terminal_x}, {terminal_y})">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""


def page_options(width: int, draw: int) -> PageOptions:
    """Ask for as much of a page as ``print_page`` prints of it: a character has at most four tokens."""
    return PageOptions(
        draw=draw,
        parts=max(width, 3) if width else _ALL,
        size=4 * width or _ALL,
        beginning=4 * (width or _BEGINNING),
        reasons=_lines(_ALL, width),
    )


def print_places(console: Console, update: Update, folder: str) -> None:
    """Print the place of each row of an update, one in a line."""
    console.print(Text.assemble((f"update {update.step:,}", "bold"), f" of {printable(folder)}"))
    for number, seen in enumerate(update.rows):
        order = f"rank {seen.rank}, micro-batch {seen.micro_batch}, sample {seen.sample:,}, epoch {seen.epoch}"
        console.print(Text(f"  row {number}: {order}, {printable(seen.place)}"))


def print_page(console: Console, page: RowPage, folder: str, width: int) -> None:
    """Print a page, at most ``width`` characters of each text; 0 for all."""
    noun, facts = page.heading.partition(" ")[0], [f"{name} {printable(value)}" for name, value in page.facts]
    if noun == "update":
        console.print(Text(f"\n{page.heading}", style="bold reverse"))
    else:
        console.print(Text.assemble((f"{noun} {page.row}", "bold"), f" of {printable(folder)}, {facts.pop(0)}"))
    if page.parts and noun != "update":
        cluster = [fact for fact in facts if fact.startswith("cluster ")]
        facts = [", ".join([format_count(page.all_parts, "part"), format_count(page.tokens, "token"), *cluster])]
        _heading(console, facts[0])
    elif facts:
        console.print(Text(", ".join(facts), style="dim"))
    for column in (column for band in page.bands for column in band):
        if column.number >= 0:
            _print_parts(console, page, width)
            _print_masks(console, column, width)
        else:
            _print_column(console, column, width)
        for block in column.seen:
            _heading(console, f"{block.heading}, {block.note}")
            marks = brackets_of(console).get("shown", _NONE) if block.heading == "stream" else _NONE
            console.print(_cut(as_text(block.pieces, marks=marks), width, block))
    for message in page.missing:
        console.print(Text(f"  {printable(message)}", style="dim"))


def _print_parts(console: Console, page: RowPage, width: int) -> None:
    parts = page.parts[: _lines(page.all_parts, width)]
    for part in parts:
        console.print(Text(f"  {title_and_id(part.document_id, part.title)}: {part.place}"))
    _print_rest(console, page.all_parts - len(parts))


def _print_masks(console: Console, column: Column, width: int) -> None:
    """Print the text of a row with its spans, and the reasons for them in the order of choice."""
    heading = Text(f"\ntext, {column.note}", style="bold")
    brackets = brackets_of(console)
    for kind in column.kinds:
        first, last = brackets.get(kind, (" ", " "))
        heading.append("  ").append(f"{first}{KINDS[kind]}{last}", style=_STYLES[kind])
    console.print(heading)
    console.print(_cut(as_text((piece for block in column.blocks for piece in block.pieces), brackets), width))
    if column.reasons:
        _heading(console, "why")
        for reason in column.reasons:
            console.print(_reason(reason))
        _print_rest(console, column.more_reasons)


def _print_column(console: Console, column: Column, width: int) -> None:
    """Print the texts of a column without masks, each under its name."""
    if column.note:
        _heading(console, f"{printable(column.heading)}: {printable(column.note)}")
    for block in column.blocks:
        text, shown_width = as_text(block.pieces), _BEGINNING if column.heading == "documents" else 0
        if block.part is None or shown_width:
            noun = "document " if shown_width else ""
            _heading(console, ", ".join(filter(None, (noun + title_and_id(block.heading, block.title), block.note))))
        else:
            console.print(Text(f"  {title_and_id(block.heading, block.title)}: {block.note}", style="bold cyan"))
        console.print(_cut(text, width or shown_width, block))


def _reason(reason: Reason) -> Text:
    """A line with rank, score and label of a span, and the beginning of its text."""
    line = Text("  ")
    if reason.rank is not None:
        line.append(f"#{reason.rank + 1} ")
    if reason.score is not None:
        line.append(f"score {reason.score:.4f} ", style="bold")
    if reason.label is not None:
        line.append(f"[{printable(reason.label)}] ", style="cyan")
    line.append(f"tokens {reason.start} to {reason.stop}: ", style="dim")
    return line.append(printable(reason.text), style=_STYLES[reason.kind])


def brackets_of(console: Console) -> Mapping[Kind, tuple[str, str]]:
    """Opening and closing bracket of each kind of span for a console without colour; empty for one with colour.

    A pipe, a file and a terminal under ``NO_COLOR`` have no colour. If the console's encoding lacks ``⟦ ⟧``, the
    bracket is ``[[ ]]``.
    """
    if console.is_terminal and not console.no_color:
        return {}
    try:
        "".join(pair for pair, _ in BRACKETS.values()).encode(console.encoding)
        pairs = {kind: pair for kind, (pair, _) in BRACKETS.items()}
    except (UnicodeEncodeError, LookupError):
        pairs = {kind: plain for kind, (_, plain) in BRACKETS.items()}
    return {kind: (pair[: len(pair) // 2], pair[len(pair) // 2 :]) for kind, pair in pairs.items()}


def as_text(
    pieces: Iterable[Piece],
    brackets: Mapping[Kind, tuple[str, str]] | None = None,
    marks: tuple[str, str] = _NONE,
) -> Text:
    """Pieces as text in colour, or in brackets; control characters are escaped. ``marks`` enclose marked pieces."""
    text = Text()
    for marked, run in groupby(pieces, attrgetter("marked")):
        before, after = marks if marked else _NONE
        text.append(before)
        for piece in run:
            first, last = (brackets or {}).get(piece.kind, _NONE)
            text.append(f"{first}{printable(piece.text)}{last}", style=(_MARKED if marked else _STYLES)[piece.kind])
        text.append(after)
    return text


def _heading(console: Console, text: str) -> None:
    console.print(Text(f"\n{text}", style="bold"))


def _lines(count: int, width: int) -> int:
    """Number of lines to print out of ``count``: all, or if texts are cut, one per 100 characters and at least 3."""
    return min(count, max(width // 100, 3)) if width else count


def _print_rest(console: Console, count: int) -> None:
    if count:
        console.print(Text(f"  ... and {count} more", style="dim"))


def _cut(text: Text, width: int, block: Block | None = None) -> Text:
    """The first ``width`` characters, with dots if these, or the block, are not all of the text."""
    whole = not width or (len(text) <= width and (block is None or block.stop == block.total))
    return text if whole else text[:width] + Text(" ...", style="dim")


def recording_console(path: str) -> Console:
    """A console that prints nothing and records what ``save_figure`` draws."""
    if not path.endswith(".svg"):
        raise FarspanError(f"--figure {path}: is drawn as SVG; give FILE.svg")
    return Console(highlight=False, record=True, width=110, file=StringIO(), force_terminal=True)


def save_figure(console: Console, path: str) -> None:
    """Draw the output of a recording console into an SVG file."""
    picture = console.export_svg(code_format=_SVG, theme=_ON_PAPER, title=" ", unique_id="show")
    write_bytes(path, picture.encode())
