"""Options of ``farspan view``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from corpora.errors import FarspanError
from corpora.options import Flag
from corpora.printing import row_numbers
from pipelines.pages.options import Selection


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
