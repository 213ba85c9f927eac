"""``farspan show``: print the page of a row, as ``farspan view`` serves it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, cast

from rich.console import Console

from corpora.errors import FarspanError
from corpora.printing import row_numbers
from corpora.reporting import result
from corpora.storage.manifest_file import read_manifest
from pipelines.inspect.options import Choice, Show
from pipelines.inspect.print_page import page_options, print_page, print_places, recording_console, save_figure
from pipelines.pages.options import Selection
from pipelines.pages.page import Subject
from pipelines.pages.subjects import names_update, open_subjects

if TYPE_CHECKING:
    from pipelines.pages.update import UpdateRows

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


def command(options: Show) -> None:
    """Run ``farspan show``."""
    show(options)
    if options.figure:
        result(f"figure: {options.figure}", figure=options.figure)


def show(options: Show, console: Console | None = None) -> None:
    """Print a row of an artefact, or the rows of an update of a run."""
    if options.width < 0:
        raise FarspanError(f"--width {options.width}: give the number of characters to show of each text, 0 for all")
    if options.figure:
        console = recording_console(options.figure)
    console = console or Console(highlight=False, soft_wrap=True)
    subject = _open(options)
    if not len(subject):
        raise FarspanError(f"{subject.folder}: has no row; there is nothing to show")
    rows: Sequence[int] = [options.row or 0]
    if subject.kind == "update" and options.row is None:
        rows = range(len(subject))
    if not 0 <= rows[-1] < len(subject):
        raise FarspanError(f"--row {options.row}: {subject.folder} has {row_numbers(len(subject))}")
    how = page_options(options.width, options.choice.draw)
    pages = map(partial(subject.page, options=how), rows)
    first = next(pages)  # errors come before anything is printed
    with console:  # a notebook shows one output, not one for each line
        if subject.kind == "update":
            print_places(console, cast("UpdateRows", subject).update, subject.folder)
        for page in (first, *pages):
            print_page(console, page, subject.folder, options.width)
    if options.figure:
        save_figure(console, options.figure)


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
