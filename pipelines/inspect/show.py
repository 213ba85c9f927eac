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
    (subject,) = open_subjects(
        Selection(
            artefact=(folder,),
            objective=(choice.objective,) if choice.objective else (),
            task=choice.task,
            preset=choice.preset,
            options=choice.options,
            scorer=choice.scorer,
            seed=choice.seed,
            corpus=options.corpus,
            documents=options.documents,
            links=False,
            layout=options.layout,
            step=options.step,
            rank=options.rank,
        )
    )
    if format == "farspan.masks" and choice.draw >= subject.draws:
        raise FarspanError(f"--draw {choice.draw}: {folder} has draws 0 to {subject.draws - 1}")
    subject.folder = folder  # that of the masks, not of their corpus
    return subject


def _check(options: Show, format: str) -> None:
    """Refuse flags that do not fit the format of the artefact."""
    folder, choice = options.artefact, options.choice

    def refuse(names: Sequence[str], why: str) -> None:
        if flags := ", ".join(_flag(choice, name) for name in names if getattr(choice, name)):
            raise FarspanError(f"{flags}: {folder} {why}")

    if format and options.corpus and format != "farspan.masks":
        raise FarspanError(f"--corpus {options.corpus}: {folder} holds no masks; leave the flag out")
    if format in ("farspan.corpus", "farspan.masks"):
        refuse(["task"], "holds no pairs; leave the flag out")
    if format == "farspan.masks":
        refuse(["objective"], "holds masks; show the corpus instead")
        refuse(["preset", "scorer", "seed"], "holds masks, which are drawn already; show the corpus instead")
    elif format == "farspan.corpus" and not choice.objective:
        refuse(["preset", "options", "scorer", "seed", "draw"], "holds no masks; name the objective: --objective NAME")
    elif format == "farspan.pairs":
        refuse(["objective", "scorer", "seed", "draw"], "holds pairs, in which nothing is hidden; leave the flags out")
        if not choice.task:
            refuse(["preset", "options"], "holds pairs; name the task that renders them: --task NAME")
    elif format in ("farspan.documents", "farspan.predictions"):
        what = format.removeprefix("farspan.")
        refuse(
            ["objective", "task", "preset", "options", "scorer", "seed", "draw"], f"holds {what}; leave the flags out"
        )


def _flag(choice: Choice, name: str) -> str:
    """Spell an option as it was typed, with the value if it names something."""
    value = getattr(choice, name)
    return f"--{name} {value}" if name in ("objective", "task") else "--set" if name == "options" else f"--{name}"
