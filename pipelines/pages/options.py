"""Options of what to show: artefacts and updates, and what is laid beside their rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from corpora.errors import FarspanError
from corpora.options import NO_FLAG, Flag
from corpora.printing import row_numbers

_DIR, _NAME = "DIR", "NAME"


@dataclass(frozen=True, kw_only=True)
class RowLayout:
    """The layout in which rows are shown as a model gets them.

    Attributes:
        layout: layout of a corpus's rows: source and target, or as one stream, as decoders get them.
    """

    layout: Literal["source_target", "stream"] = "source_target"


@dataclass(frozen=True, kw_only=True)
class Selection(RowLayout):
    """Artefacts and updates to show, and what to lay beside their rows.

    Attributes:
        artefact: folders of corpora, mask sets, documents, pairs or predictions, or with several of them; or runs of
            `farspan train`, for their curves or, with --step, the rows of an update.
        masks: mask sets to lay beside their corpus; those among the artefacts count, too.
        objective: an objective, or one of the presets, whose masks are drawn and laid beside each corpus; repeatable.
        seed: seed of drawn masks.
        task: for pairs: also the source and target that this task, or one of the presets, makes of them.
        corpus: folder of the mask sets' corpus (default: the one they were made from).
        documents: folder of the documents of pairs, or of a corpus with titles (default: those they were made from).
        neighbours: folder of the neighbours of a linked corpus (default: those it was made from).
        step: of a run: the rows that this update saw, as the model saw them.
        rank: of a run: only the rows of this process.
        preset: preset of the objective or task.
        options: options of the objective or task, or of mask sets that are adjusted.
        scorer: model of the objective.
        links: also show how the documents of linked rows are related.
    """

    artefact: Annotated[tuple[str, ...], Flag(positional=True)]
    masks: Annotated[tuple[str, ...], Flag(metavar=_DIR, several=True)] = ()
    objective: Annotated[tuple[str, ...], Flag(metavar=_NAME)] = ()
    seed: int = 0
    task: Annotated[str | None, Flag(metavar=_NAME)] = None
    corpus: Annotated[str | None, Flag(metavar=_DIR)] = None
    documents: Annotated[str | None, Flag(metavar=_DIR)] = None
    neighbours: Annotated[str | None, Flag(metavar=_DIR)] = None
    step: Annotated[int | None, Flag(metavar="N")] = None
    rank: Annotated[int | None, Flag(metavar="R")] = None
    preset: Annotated[str | None, NO_FLAG] = None
    options: Annotated[Mapping[str, Any], NO_FLAG] = field(default_factory=dict)
    scorer: Annotated[str | None, NO_FLAG] = None
    links: Annotated[bool, NO_FLAG] = True


@dataclass(frozen=True, kw_only=True)
class View(Selection):
    """Options of ``farspan view``.

    Serves pages about artefacts and runs to browsers on this machine, at an address that is printed; Ctrl-C ends it. A
    folder of them is an overview of what was made from what, an artefact a table of its rows, a run its curves, which
    grow while it trains. Mask sets are laid beside their corpus, predictions beside their references. Needs `pip
    install 'farspan[view]'`.

    Attributes:
        row: number of the first row to show; the table of all rows comes first by default.
        rows: numbers of rows, as in 3,17,204: only these are shown.
        port: number of the port; 0 for a free one.
        save: write rows, or the curves of runs, into one self-contained file instead of serving pages.
        count: number of rows to save (default: 10, or as many as there are).

    Examples:
        farspan view demo-output
        farspan view corpus --masks masks-t5 masks-pegasus
        farspan view corpus --objective bart_ls --objective pegasus
        farspan view masks --layout stream
        farspan view predictions-a predictions-b
        farspan view masks --save page.html --count 5
        farspan view run --step 1200
        farspan view runs/a runs/b --save curves.html
    """

    row: Annotated[int, Flag(least=0)] = 0
    rows: Annotated[str | None, Flag(metavar="N,N,...")] = None
    port: Annotated[int, Flag(least=0, most=65_535)] = 0
    save: Annotated[str | None, Flag(metavar="FILE.html")] = None
    count: Annotated[int | None, Flag(least=1)] = None

    def __post_init__(self) -> None:
        self.chosen_rows  # noqa: B018 (refuses what is no list of numbers)

    def check_rows(self, artefact: str, length: int) -> None:
        """Check that an artefact with ``length`` rows has all that are to be shown."""
        last, flags = self.row, f"--row {self.row}"
        if self.chosen_rows:
            last, flags = self.chosen_rows[-1], f"--rows {self.rows}"
        elif self.count is not None:
            last, flags = self.row + self.count - 1, f"{flags} --count {self.count}"
        if last >= length:
            raise FarspanError(f"{flags}: {artefact} has {row_numbers(length)}")

    @property
    def chosen_rows(self) -> tuple[int, ...]:
        """The rows of ``rows``, ascending; empty for all."""
        if self.rows is None:
            return ()
        try:
            chosen = sorted({int(part) for part in self.rows.split(",")})
        except ValueError:
            chosen = [-1]
        if chosen[0] < 0:
            raise FarspanError(f"--rows {self.rows}: give row numbers, as in 3,17,204")
        return tuple(chosen)
