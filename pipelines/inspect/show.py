"""``farspan show``: print the page of a row, as ``farspan view`` serves it, in colours, in brackets or as SVG."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from io import StringIO
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, cast

from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

from corpora.errors import FarspanError
from corpora.printing import format_count, printable, row_numbers
from corpora.reporting import result
from corpora.storage.files import write_bytes
from corpora.storage.manifest_file import read_manifest
from pipelines.inspect.options import Choice, Show
from pipelines.pages.options import Selection
from pipelines.pages.page import Block, Column, PageOptions, Reason, RowPage, Subject
from pipelines.pages.piece import BRACKETS, KINDS, Kind, Piece, title_and_id
from pipelines.pages.subjects import names_update, open_subjects

if TYPE_CHECKING:
    from pipelines.pages.update import Update, UpdateRows

_CHOICE = "objective task preset options scorer seed draw"
_REFUSED = (
    ("corpus masks", "task", "", "holds no pairs; leave the flag out"),
    ("masks", "objective", "", "holds masks; show the corpus instead"),
    ("masks", "preset scorer seed", "", "holds masks, which are drawn already; show the corpus instead"),
    ("corpus", _CHOICE, "objective", "holds no masks; name the objective: --objective NAME"),
    ("pairs", "objective scorer seed draw", "", "holds pairs, in which nothing is hidden; leave the flags out"),
    ("pairs", "preset options", "task", "holds pairs; name the task that renders them: --task NAME"),
    ("documents", _CHOICE, "", "holds documents; leave the flags out"),
    ("predictions", _CHOICE, "", "holds predictions; leave the flags out"),
)
"""Kinds of artefacts, options that do not fit them, an option with which they do, and the reason."""
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
_GREEN, _YELLOW, _MAGENTA = (185, 230, 185), (255, 226, 130), (232, 196, 240)
_COLOURS = [(0, 0, 0), (190, 30, 30), _GREEN, _YELLOW, (30, 60, 160), _MAGENTA, (0, 115, 125), (90, 90, 90)]
_ON_PAPER = TerminalTheme((255, 255, 255), (30, 30, 30), _COLOURS)
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


def command(options: Show) -> None:
    """Run ``farspan show``."""
    show(options)
    if options.figure:
        result(f"figure: {options.figure}", figure=options.figure)


def show(options: Show, console: Console | None = None) -> None:
    """Print a row of an artefact, or the rows of an update of a run."""
    if options.figure and not options.figure.endswith(".svg"):
        raise FarspanError(f"--figure {options.figure}: is drawn as SVG; give FILE.svg")
    if options.figure:  # printed nowhere, and recorded
        console = Console(highlight=False, record=True, width=110, file=StringIO(), force_terminal=True)
    console = console or Console(highlight=False, soft_wrap=True)
    subject = _open(options)
    if not len(subject):
        raise FarspanError(f"{subject.folder}: has no row; there is nothing to show")
    rows: Sequence[int] = [options.row or 0]
    if subject.kind == "update" and options.row is None:
        rows = range(len(subject))
    if not 0 <= rows[-1] < len(subject):
        raise FarspanError(f"--row {options.row}: {subject.folder} has {row_numbers(len(subject))}")
    width, beginning = options.width or 0, _BEGINNING if options.width is None else options.width
    how = _page_options(width, beginning, options.choice.draw)
    pages = map(partial(subject.page, options=how), rows)
    first = next(pages)  # errors come before anything is printed
    with console:  # a notebook shows one output, not one for each line
        if subject.kind == "update":
            _print_places(console, cast("UpdateRows", subject).update, subject.folder, rows)
        for page in (first, *pages):
            _print_page(console, page, subject.folder, width, beginning)
    if options.figure:
        picture = console.export_svg(code_format=_SVG, theme=_ON_PAPER, title=" ", unique_id="show")
        write_bytes(options.figure, picture.encode())


def _open(options: Show) -> Subject:
    """Open the artefact or update, after a check of the flags."""
    folder, choice = options.artefact, options.choice
    format = "" if names_update(folder, options.step, options.rank) else read_manifest(folder).format
    _check(options, format)
    chosen = {name: getattr(choice, name) for name in ("task", "preset", "options", "scorer", "seed")}
    chosen |= {name: getattr(options, name) for name in ("corpus", "documents", "layout", "step", "rank")}
    objective = (choice.objective,) if choice.objective else ()
    (subject,) = open_subjects(Selection(artefact=(folder,), objective=objective, links=False, **chosen))
    if format == "farspan.masks" and choice.draw >= subject.draws:
        raise FarspanError(f"--draw {choice.draw}: {folder} has draws 0 to {subject.draws - 1}")
    subject.folder = folder  # that of the masks, not of their corpus
    return subject


def _check(options: Show, format: str) -> None:
    """Refuse flags that do not fit the format of the artefact."""
    folder, choice = options.artefact, options.choice
    if format and options.corpus and format != "farspan.masks":
        raise FarspanError(f"--corpus {options.corpus}: {folder} holds no masks; leave the flag out")
    for kinds, names, unless, why in _REFUSED:
        if format.removeprefix("farspan.") not in kinds.split() or (unless and getattr(choice, unless)):
            continue
        if flags := ", ".join(_flag(choice, name) for name in names.split() if getattr(choice, name)):
            raise FarspanError(f"{flags}: {folder} {why}")


def _flag(choice: Choice, name: str) -> str:
    """Spell an option as it was typed, with the value if it names something."""
    value = getattr(choice, name)
    return f"--{name} {value}" if name in ("objective", "task") else "--set" if name == "options" else f"--{name}"


def _page_options(width: int, beginning: int, draw: int) -> PageOptions:
    """Ask for as much of a page as is printed: a character has at most four tokens."""
    return PageOptions(
        draw=draw,
        parts=max(width, 3) if width else _ALL,
        size=4 * width or _ALL,
        beginning=4 * beginning or _ALL,
        reasons=_lines(_ALL, width),
    )


def _print_places(console: Console, update: Update, folder: str, rows: Iterable[int]) -> None:
    """Print the places of some rows of an update, one in a line."""
    console.print(Text.assemble((f"update {update.step:,}", "bold"), f" of {printable(folder)}"))
    for number in rows:
        seen = update.rows[number]
        order = f"rank {seen.rank}, micro-batch {seen.micro_batch}, sample {seen.sample:,}, epoch {seen.epoch}"
        console.print(Text(f"  row {number}: {order}, {printable(seen.place)}"))


def _print_page(console: Console, page: RowPage, folder: str, width: int, beginning: int) -> None:
    """Print a page, at most ``width`` characters of each text and ``beginning`` of a pair's documents; 0 for all."""
    noun, facts = page.heading.partition(" ")[0], [f"{name} {printable(value)}" for name, value in page.facts]
    if noun == "update":
        console.print(Text(f"\n{page.heading}", style="bold reverse"))
    else:
        console.print(Text.assemble((f"{noun} {page.row}", "bold"), f" of {printable(folder)}, {facts.pop(0)}"))
    if page.parts and noun != "update":
        cluster = [fact for fact in facts if fact.startswith("cluster ")]
        counts = [format_count(page.all_parts, "part"), format_count(page.tokens, "token")]
        _heading(console, ", ".join(counts + cluster))
    elif facts:
        console.print(Text(", ".join(facts), style="dim"))
    for column in (column for band in page.bands for column in band):
        if column.number >= 0:
            _print_parts(console, page, width)
            _print_masks(console, column, width)
        else:
            _print_column(console, column, width, beginning)
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


def _print_column(console: Console, column: Column, width: int, beginning: int) -> None:
    """Print the texts of a column without masks, each under its name."""
    if column.note:
        _heading(console, f"{printable(column.heading)}: {printable(column.note)}")
    documents = column.heading == "documents"
    for block in column.blocks:
        if block.part is None or documents:
            noun = "document " if documents else ""
            _heading(console, ", ".join(filter(None, (noun + title_and_id(block.heading, block.title), block.note))))
        else:
            console.print(Text(f"  {title_and_id(block.heading, block.title)}: {block.note}", style="bold cyan"))
        console.print(_cut(as_text(block.pieces), beginning if documents else width, block))


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
