"""The rows of an update of a run: found from the order of the samples without a model, and shown as pages."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from corpora.errors import FarspanError
from corpora.printing import format_count
from corpora.schemas.sequences import SequenceBatch
from objectives.api.masks import MaskBatch
from objectives.tasks.protocol import Rendered
from pipelines.pages.corpus_rows import CorpusRows, Masker
from pipelines.pages.lookups import find_titles
from pipelines.pages.page import SOME, Measure, PageOptions, RowPage, Subject
from pipelines.pages.pair_rows import PairRows, Rendering
from trainer.checkpoint.run_files import STARTS, read_lines, read_tokenizer
from trainer.data.curriculum import Stage, stage_number
from trainer.data.masked_corpus import MaskedCorpus
from trainer.data.mixture import Mixture
from trainer.data.order import partition
from trainer.data.packed import PackedPairs, unpacked
from trainer.data.paired import PairedSource
from trainer.recipe import Recipe, read_recipe
from trainer.run.sources import open_stages


@dataclass(frozen=True)
class SeenRow:
    """A row of an update."""

    rank: int  # process that had the row, and number of its forward pass
    micro_batch: int
    sample: int  # number of the sample in the order of its stage
    source: str  # name and number of the source in the mixture, and row in the source
    part: int
    row: int
    epoch: int  # number of times the run had seen the row before
    place: str  # source, file and row in words


@dataclass(frozen=True)
class Update:
    """The rows of an update in the selected processes, in the order of their samples, and what renders them.

    The pairs of a packed row are rows of their own.
    """

    step: int
    mixture: Mixture
    rows: Sequence[SeenRow]


def read_update(folder: str, step: int, rank: int | None = None) -> Update:
    """Find the rows that update ``step`` of a run saw, from the recipe and starts that its folder keeps.

    With ``rank``, only the rows of this process.
    """
    recipe = read_recipe(Path(folder))
    if recipe is None:
        raise FarspanError(f"{folder}: keeps no recipe; give a run of `farspan train`")
    starts = [start for start in read_lines(Path(folder) / STARTS) if start.get("step", 0) < step]
    return find_update(recipe, step, int(starts[-1].get("processes", 1)) if starts else 1, rank)


def find_update(recipe: Recipe, step: int, processes: int = 1, rank: int | None = None) -> Update:
    """Find the rows of update ``step`` of a run, counted from 1 as in ``metrics.jsonl``; of one process with ``rank``.

    The number of ``processes`` at that step determines the process of each row.
    """
    if recipe.generator:
        raise FarspanError(
            "the run trains its generator jointly, and the masks depend on the generator's weights at that update; "
            "show rows of its corpus instead, with the places that metrics.jsonl names"
        )
    mixtures = open_stages(recipe.curriculum, cache=recipe.loading.cache)
    curriculum = recipe.with_samples(len(mixtures[0])).curriculum
    if not 1 <= step <= curriculum[-1].last_step:
        raise FarspanError(f"--step {step}: the run has updates 1 to {curriculum[-1].last_step:,}")
    if rank is not None and not 0 <= rank < processes:
        raise FarspanError(f"--rank {rank}: the run had processes 0 to {processes - 1} at that update")
    number = stage_number(curriculum, step - 1)
    stage, mixture = curriculum[number], mixtures[number]
    ranks = range(processes) if rank is None else [rank]
    rows = [row for one in ranks for row in _find_rows(stage, mixture, step - 1, recipe.run.seed, one, processes)]
    return Update(step, mixture, rows)


def _find_rows(stage: Stage, mixture: Mixture, step: int, seed: int, rank: int, processes: int) -> Iterator[SeenRow]:
    """Yield the rows that the loader gives a process for ``step``, counted from 0."""
    samples = np.asarray(stage.samples(step), np.int64)
    indices, epochs = mixture.sequences(samples, seed)
    starts = np.cumsum([0, *(share.size for share in mixture.shares)])
    parts = np.searchsorted(starts, indices, side="right") - 1
    cuts = partition(stage.batch_size, stage.micro_batch_size, rank, processes)
    for micro_batch, cut in enumerate(cuts):
        for place in range(*cut.indices(len(samples))) if cut is not None else ():
            part = int(parts[place])
            name, source = mixture.parts[part].name, mixture.parts[part].source
            row, epoch = int(indices[place] - starts[part]), int(epochs[place])
            origins, rows = mixture.origins(indices[place : place + 1]), [row]
            if isinstance(source, PackedPairs):
                rows = source.members[row].tolist()
                origins = [f"{name}: {source.pairs.origin(member)}" for member in rows]
            for member, origin in zip(rows, origins, strict=True):
                yield SeenRow(rank, micro_batch, int(samples[place]), name, part, member, epoch, origin)


class UpdateRows:
    """A ``Subject``: the rows that an update of a run saw, each as a row of its corpus or pairs."""

    kind = "update"
    draws = 1
    mask_sets: tuple[str, ...] = ()  # a filter by hidden tokens would read draw 0, not the one that was seen

    def __init__(self, name: str, folder: str, step: int, rank: int | None = None) -> None:
        self.name, self.folder, self.update = name, folder, read_update(folder, step, rank)
        tokenizer = read_tokenizer(Path(folder))
        if tokenizer is None:
            raise FarspanError(f"{folder}: has no folder tokenizer; copy the run again, as a whole")
        self.tokenizer = tokenizer
        self._pages = _find_pages(self.update)
        self.sources = tuple(sorted({source for subject, *_ in self._pages for source in subject.sources}))
        self.summary = f"update {step:,}, {format_count(len(self._pages), 'row')}"
        columns = (("source", "source"), ("rank", "process"), ("micro_batch", "micro-batch"), ("epoch", "epoch"))
        self.measures: tuple[Measure, ...] = (
            Measure("tokens", "tokens", self._tokens, SOME, filters=("least", "most")),
            *(self._measure(*column) for column in columns),
        )

    def __len__(self) -> int:
        return len(self._pages)

    def page(self, row: int, options: PageOptions) -> RowPage:
        shown, seen = self._pages[row], self.update.rows[row]
        page = shown.subject.page(shown.row, replace(options, draw=shown.draw))
        facts = (
            ("source", seen.source),
            ("row", f"{shown.place:,} of {Path(shown.subject.folder).name}"),
            ("process", f"rank {seen.rank}, micro-batch {seen.micro_batch}"),
            ("sample", f"{seen.sample:,}, epoch {seen.epoch}"),
        )
        heading = f"update {self.update.step:,}, row {row:,} of {len(self):,}"
        return replace(page, row=row, heading=heading, facts=(*facts, *page.facts))

    def batch_of(self, row: int) -> tuple[int, int]:
        return row, row + 1

    def ids(self, start: int, stop: int) -> tuple[pa.Array, pa.Array]:
        names, documents = zip(*(one.subject.ids(one.row, one.row + 1) for one in self._pages[start:stop]), strict=True)
        kind = pa.list_(pa.string())
        return pa.concat_arrays(names), pa.concat_arrays([one.cast(kind) for one in documents])

    def _tokens(self, start: int, stop: int) -> np.ndarray:
        lengths = []
        for one in self._pages[start:stop]:
            (measure,) = (measure for measure in one.subject.measures if measure.key == "tokens")
            lengths.append(measure.read(one.row, one.row + 1))
        return np.concatenate(lengths)

    def _measure(self, name: str, title: str) -> Measure:
        """A column of the facts about the rows."""
        values = [getattr(seen, name) for seen in self.update.rows]
        named = name == "source"
        column = np.array(values, object if named else np.float64)
        return Measure(name, title, lambda start, stop: column[start:stop], decimals=None if named else 0)

    def beginning(self, row: int) -> tuple[str, str]:
        return self._pages[row].subject.beginning(self._pages[row].row)

    def texts(self, row: int) -> Iterable[tuple[int, str]]:
        return self._pages[row].subject.texts(self._pages[row].row)


class _Page(NamedTuple):
    """The page of a row of an update: a row and a draw of a subject, and its place, the row of the artefact."""

    subject: Subject
    row: int
    draw: int
    place: int


def _find_pages(update: Update) -> list[_Page]:
    """Find the page of each row of the update."""
    pages: dict[int, _Page] = {}
    for part, (name, source) in enumerate((part.name, unpacked(part.source)) for part in update.mixture.parts):
        rows = {number: row for number, row in enumerate(update.rows) if row.part == part}
        if not rows:
            continue
        if isinstance(source, MaskedCorpus):
            masker = Masker(name, source.objective, source.special, _draw_masks(source))
            subject: Subject = CorpusRows(name, source.corpus, [masker], titles=find_titles(source.corpus))
            pages |= {number: _Page(subject, row.row, row.epoch, row.row) for number, row in rows.items()}
        elif isinstance(source, PairedSource):
            places = [source.pair_of(row.row)[1] for row in rows.values()]  # the source has the pairs of one split
            subject = _open_pairs(name, source, list(rows.values()), np.array(places))
            pages |= {number: _Page(subject, inner, 0, places[inner]) for inner, number in enumerate(rows)}
        else:
            raise FarspanError(f"source {name!r} has rows of a kind that cannot be shown")
    return [pages[number] for number in range(len(update.rows))]


def _draw_masks(source: MaskedCorpus) -> Callable[[SequenceBatch, np.ndarray, int], MaskBatch]:
    """The masks that the run saw; the draw is the number of times that it had seen the row before."""
    return lambda batch, rows, draw: source.rows(rows, np.full(len(rows), draw))[1]


def _open_pairs(name: str, source: PairedSource, rows: Sequence[SeenRow], places: np.ndarray) -> PairRows:
    """The pairs of some rows of a source, with the source and target that the run made of each."""

    def render(page: int, row: int) -> Rendered:
        return source.rendered(np.array([rows[page].row]), np.array([rows[page].epoch]))

    pairs, _ = source.pair_of(rows[0].row)
    return PairRows(name, pairs, (), Rendering(f"task {source.task.name}", source.special, render), places)
