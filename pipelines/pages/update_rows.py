"""The rows of an update of a run as pages: each as a row of its corpus or pairs, in the order of the update."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from corpora.errors import FarspanError
from corpora.printing import counted
from corpora.schemas.sequences import SequenceBatch
from objectives.api.masks import MaskBatch
from objectives.api.protocol import Objective
from objectives.api.special_tokens import SpecialTokens
from objectives.tasks.protocol import Rendered
from pipelines.pages.corpus_rows import CorpusRows
from pipelines.pages.filters import Filter
from pipelines.pages.page import Block, PageOptions, RowPage, Subject
from pipelines.pages.pair_rows import PairRows, Samples
from pipelines.pages.titles import find_titles
from pipelines.pages.update import Seen, UpdateRows, open_update, run_tokenizer
from trainer.data.masked_corpus import MaskedCorpus
from trainer.data.paired import PairedSource


@dataclass(frozen=True)
class Trained:
    """The masks that a run saw; the draw is the number of times that it had seen the row before."""

    name: str
    source: MaskedCorpus
    draws: None = None

    @property
    def objective(self) -> Objective:
        return self.source.objective

    @property
    def special(self) -> SpecialTokens:
        return self.source.special

    def masks(self, batch: SequenceBatch, rows: np.ndarray, draw: int) -> MaskBatch:
        return self.source.rows(rows, np.full(len(rows), draw))[1]


@dataclass(frozen=True)
class _Place:
    """A row of an update, which is shown as row ``row`` of ``subject`` with the masks of ``draw``."""

    seen: Seen
    subject: Subject
    row: int
    draw: int


class StepRows:
    """A ``Subject``: the rows that an update of a run saw."""

    kind = "update"
    draws = 1
    mask_sets: tuple[str, ...] = ()  # a filter by hidden tokens would read draw 0, not the one that was seen

    def __init__(self, name: str, folder: str, update: UpdateRows) -> None:
        self.name, self.folder, self.step = name, folder, update.step
        self.tokenizer = run_tokenizer(folder)
        self._places, self.seen = _places(update), update.rows
        self.sources = sorted({source for place in self._places for source in place.subject.sources})
        self.described = f"update {update.step:,}, {counted(len(self._places), 'row')}"

    def __len__(self) -> int:
        return len(self._places)

    def page(self, row: int, options: PageOptions) -> RowPage:
        place = self._places[row]
        page, seen = place.subject.page(place.row, self._with_draw(place, options)), place.seen
        facts = (
            ("source", seen.source),
            ("row", f"{seen.row:,} of {Path(place.subject.folder).name}"),
            ("process", f"rank {seen.rank}, micro-batch {seen.micro_batch}"),
            ("sample", f"{seen.sample:,}, epoch {seen.epoch}"),
        )
        heading = f"update {self.step:,}, row {row:,} of {len(self) - 1:,}"
        return replace(page, row=row, heading=heading, facts=(*facts, *page.facts))

    def block(self, row: int, address: str, start: int, size: int, options: PageOptions) -> Block:
        place = self._places[row]
        return place.subject.block(place.row, address, start, size, self._with_draw(place, options))

    def _with_draw(self, place: _Place, options: PageOptions) -> PageOptions:
        return replace(options, draw=place.draw)

    def batch_of(self, row: int) -> tuple[int, int]:
        return row, row + 1

    def matches(self, start: int, stop: int, wanted: Filter) -> np.ndarray:
        wanted = replace(wanted, least_hidden=None, most_hidden=None)
        fits = (place.subject.matches(place.row, place.row + 1, wanted) for place in self._places[start:stop])
        return np.concatenate([np.zeros(0, bool), *fits])

    def texts(self, row: int) -> Iterable[tuple[int, str]]:
        place = self._places[row]
        return place.subject.texts(place.row)


def open_step(name: str, folder: str, step: int, rank: int | None) -> StepRows:
    """Open the rows of an update as pages."""
    return StepRows(name, folder, open_update(folder, step, rank))


def _places(update: UpdateRows) -> Sequence[_Place]:
    """Find the page of each row of the update among those of its source."""
    places: list[_Place] = [None] * len(update.rows)  # type: ignore[list-item]
    for number, part in enumerate(update.mixture.parts):
        own = [(place, seen) for place, seen in enumerate(update.rows) if seen.part == number]
        if not own:
            continue
        source = part.source
        if isinstance(source, MaskedCorpus):
            masker, titles = Trained(part.name, source), find_titles(source.corpus)
            subject: Subject = CorpusRows(part.name, source.corpus, [masker], titles=titles)
            for place, seen in own:
                places[place] = _Place(seen, subject, seen.row, seen.epoch)
        elif isinstance(source, PairedSource):
            subject = _of_pairs(part.name, source, [seen for _, seen in own])
            for inner, (place, seen) in enumerate(own):
                places[place] = _Place(seen, subject, inner, 0)
        else:
            raise FarspanError(f"source {part.name!r} has rows of a kind that cannot be shown")
    return places


def _of_pairs(name: str, source: PairedSource, rows: Sequence[Seen]) -> PairRows:
    """The pairs of some rows of a source, with the source and target that the run made of each."""

    def rendered(number: int) -> Rendered:
        return source.rendered(np.array([rows[number].row]), np.array([rows[number].epoch]))

    pairs, _ = source.pair_of(rows[0].row)
    places = np.array([source.pair_of(seen.row)[1] for seen in rows])
    return PairRows(name, pairs, samples=Samples(f"task {source.task.name}", source.special, places, rendered))
