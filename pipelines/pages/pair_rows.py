"""Pairs as pages: question, answers and documents, and predictions beside the references."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from corpora.errors import FarspanError
from corpora.printing import format_count
from corpora.schemas.pairs import PairSet
from corpora.schemas.predictions import PredictionSet
from corpora.tokenizers.load import load_tokenizer_of
from objectives.api.protocol import Tools, equip
from objectives.api.special_tokens import SpecialTokens
from objectives.metrics.metrics import load_metric
from objectives.tasks.protocol import NO_TARGET, TASKS, PairFacts, Rendered, load_task
from pipelines.pages.document_rows import document_tokens
from pipelines.pages.filters import read_rows
from pipelines.pages.page import BEGINNING, SOME, Block, Column, Measure, PageOptions, RowPage
from pipelines.pages.piece import COMPARED, compare
from pipelines.pages.row import side_blocks, string_block, token_block

_METRICS = ("rouge:scrolls", "f1")


@dataclass(frozen=True)
class Rendering:
    """A way to render pairs."""

    heading: str  # names of task and preset
    special: SpecialTokens  # special tokens of the task
    # function that renders a pair, given the number of its page and its row in the pairs
    render: Callable[[int, int], Rendered]


def load_rendering(
    pairs: PairSet, name: str | None, preset: str | None = None, options: Mapping[str, Any] | None = None
) -> Rendering | None:
    """Load a task, or the preset of one, that renders each pair with its first target, if it has one; None for None."""
    if name is None:
        return None
    name, preset = TASKS.resolve(name, preset)
    task = equip(load_task(name, preset, options or {}), Tools(load_tokenizer_of(pairs.folder)))
    special = task.validate(PairFacts.of(pairs.manifest))

    def render(page: int, row: int) -> Rendered:
        batch = pairs.take([row])
        return task.render(batch, np.array([0 if len(batch.targets) else NO_TARGET]), special)

    return Rendering(f"task {name}" + (f", preset {preset}" if preset else ""), special, render)


@dataclass(frozen=True)
class System:
    """The predictions of one system, under the name of their folder."""

    name: str
    predictions: PredictionSet


class PairRows:
    """A ``Subject``: pairs, or the predictions of one or more systems for the pairs of one split."""

    draws = 1
    mask_sets: tuple[str, ...] = ()

    def __init__(
        self,
        name: str,
        pairs: PairSet,
        systems: Sequence[System] = (),
        rendering: Rendering | None = None,
        places: np.ndarray | None = None,
    ) -> None:
        """Open pairs; ``places`` are the ``(n,)`` int64 rows of the pages, None for all or the systems' split."""
        self.name, self.kind = name, "predictions" if systems else "pairs"
        self.folder = systems[0].predictions.folder if systems else pairs.folder
        self._pairs, self._systems, self._rendering = pairs, tuple(systems), rendering
        self.tokenizer = load_tokenizer_of(pairs.folder)
        self.sources = tuple(sorted(pairs.documents.manifest.counts))
        if places is None:
            places = pairs.rows_of(systems[0].predictions.split) if systems else np.arange(len(pairs))
        self._places = places
        split = f" of split {systems[0].predictions.split}" if systems else ""
        whole = len(places) == len(pairs)  # the documents are those of all pairs
        documents = f", {format_count(len(pairs.documents), 'document')}" if whole else ""
        self.summary = f"{format_count(len(places), 'pair')}{split}{documents}"
        self.measures: tuple[Measure, ...] = (
            Measure("query", "question tokens", partial(self._lengths, "query")),
            Measure("tokens", "document tokens", self._document_tokens, SOME, filters=("least", "most")),
            Measure("references", "references", partial(self._lengths, "references")),
            Measure("split", "split", lambda *rows: self._table("split", *rows).to_numpy(), decimals=None),
            *(
                Measure(f"f1-{number}", f"F1, {system.name}", partial(self._f1, system.predictions), SOME, 1)
                for number, system in enumerate(systems)
            ),
        )

    def __len__(self) -> int:
        return len(self._places)

    def page(self, row: int, options: PageOptions) -> RowPage:
        (values,) = self._pairs.table([int(self._places[row])]).to_pylist()
        documents = len(values["document_ids"])
        facts = [("pair", values["pair_id"]), ("split", values["split"]), ("documents", f"{documents:,}")]
        facts += [(name, _plain(value)) for name, value in json.loads(values["attributes"]).items()]
        shown = options.shown_parts(documents)
        size = options.size
        bands = [
            self._predictions(row, values, size),
            self._question(values, size),
            self._sides(row, size),
            [Column("documents", "", _cut((self._document(values, place) for place in shown), options.beginning))],
        ]
        heading = f"{'prediction' if self._systems else 'pair'} {row:,} of {len(self):,}"
        filled = tuple(tuple(band) for band in bands if band)
        return RowPage(row, heading, tuple(facts), filled, first_part=shown.start, all_parts=documents)

    def _predictions(self, row: int, values: Mapping[str, Any], size: int) -> list[Column]:
        """The references, and beside them the prediction of each system."""
        if not self._systems:
            return []
        references = values["references"]
        answers = self._answers(row)
        compared = [compare(answer["text"], references) for answer in answers]
        note = f"words shared with {self._systems[0].name} are marked" if references else "the pair has none"
        heading = "reference" if len(references) == 1 else "references"
        marked = {compared[0][0]: compare(references[compared[0][0]], [answers[0]["text"]])[1]} if references else {}
        columns = [Column(heading, note, _cut(_references(references, marked), size))]
        for number, (system, answer, (nearest, pieces)) in enumerate(
            zip(self._systems, answers, compared, strict=True)
        ):
            note = f"{format_count(len(answer['tokens']), 'token')}, score {answer['score']:.4f}"
            if references:
                note += f" — {_score(answer['text'], references)}"
            beside = f"beside reference {nearest}" if references else ""
            block = string_block(f"prediction-{number}", beside, answer["text"], pieces)
            columns.append(Column(system.name, note, _cut([block], size)))
        return columns

    def _answers(self, row: int) -> list[dict[str, Any]]:
        """The row of each system's predictions."""
        return [read_rows(system.predictions, row, row + 1).to_pylist()[0] for system in self._systems]

    def _question(self, values: Mapping[str, Any], size: int) -> list[Column]:
        """Question, targets and references, as far as the pair has them."""
        query = [self._tokens("query-0", "query", values["query"])] if values["query"] else []
        options, targets = (
            [self._tokens(f"{what}-{number}", f"{what} {number}", ids) for number, ids in enumerate(lists or ())]
            for what, lists in (("option", values["options"]), ("target", values["targets"]))
        )
        references = () if self._systems else _references(values["references"])
        blocks = {"question": query + options, "targets": targets, "references": references}
        columns = [Column(heading, "", _cut(texts, size)) for heading, texts in blocks.items()]
        return [column for column in columns if column.blocks]

    def _tokens(self, address: str, heading: str, ids: Sequence[int]) -> Block:
        return token_block(address, heading, self.tokenizer, np.array(ids, np.int64))

    def _sides(self, row: int, size: int) -> list[Column]:
        """Source and target as the task renders them."""
        if not self._rendering:
            return []
        rendered = self._rendering.render(row, int(self._places[row]))
        sides = side_blocks("seen", rendered.examples, self.tokenizer, self._rendering.special.ids)
        return [Column(self._rendering.heading, _describe_cut(rendered), (), seen=_cut(sides, size))]

    def _document(self, values: Mapping[str, Any], number: int) -> Block:
        documents, row = self._pairs.documents, values["document_rows"][number]
        tokens, title = document_tokens(documents, row), documents.title(row)
        name = values["document_ids"][number]
        return token_block(f"document-{number}", name, self.tokenizer, tokens, number, title)

    def batch_of(self, row: int) -> tuple[int, int]:
        size = self._pairs.manifest.rows_per_batch
        first = row // size * size
        return first, min(first + size, len(self))

    def _table(self, name: str, start: int, stop: int) -> pa.ChunkedArray:
        return self._pairs.table(self._places[start:stop]).column(name)

    def ids(self, start: int, stop: int) -> tuple[pa.Array, pa.Array]:
        names, documents = (self._table(name, start, stop) for name in ("pair_id", "document_ids"))
        return names.combine_chunks(), documents.combine_chunks()

    def _lengths(self, name: str, start: int, stop: int) -> np.ndarray:
        """The lengths of the lists of a column."""
        return pc.list_value_length(self._table(name, start, stop)).to_numpy().astype(np.float64)

    def _document_tokens(self, start: int, stop: int) -> np.ndarray:
        """Number of tokens of the documents of each pair together."""
        rows = self._table("document_rows", start, stop).to_pylist()
        lengths = [sum(len(document_tokens(self._pairs.documents, row)) for row in numbers) for numbers in rows]
        return np.array(lengths, np.float64)

    def _f1(self, predictions: PredictionSet, start: int, stop: int) -> np.ndarray:
        """F1 of the words of each prediction, nan without references."""
        texts = predictions.table(np.arange(start, stop)).column("text").to_pylist()
        references = self._table("references", start, stop).to_pylist()
        known = [place for place, one in enumerate(references) if one]
        scores = np.full(stop - start, np.nan)
        if known:
            compared = [[texts[place][:COMPARED] for place in known], [references[place] for place in known]]
            scores[known] = load_metric("f1").scores(*compared)["f1"]
        return scores

    def beginning(self, row: int) -> tuple[str, str]:
        (values,) = self._pairs.table([int(self._places[row])]).to_pylist()
        answers = zip(self._systems, self._answers(row), strict=True)
        parts = [f"{system.name}: {answer['text']}" for system, answer in answers]
        parts += [f"reference: {text}" for text in values["references"][:1]]
        parts += [self.tokenizer.decode(values["query"])]  # last, as all pairs may have the same question
        size = 4 * BEGINNING // len(parts)
        return values["pair_id"], "; ".join(text[:size] for text in parts if text)

    def texts(self, row: int) -> Iterator[tuple[int, str]]:
        """Question, options, references and predictions; not the documents."""
        (values,) = self._pairs.table([int(self._places[row])]).to_pylist()
        for ids in (values["query"], *(values["options"] or ())):
            yield len(ids), self.tokenizer.decode(ids)
        for text in (*values["references"], *(answer["text"] for answer in self._answers(row))):
            yield len(text) // 4, text


def _cut(blocks: Iterable[Block], size: int) -> tuple[Block, ...]:
    return tuple(block.cut(0, size) for block in blocks)


def _references(texts: Sequence[str], marked: Mapping[int, Any] | None = None) -> list[Block]:
    """References as blocks, in the pieces of ``marked`` where it has some."""
    return [
        string_block(f"reference-{number}", f"reference {number}", text, (marked or {}).get(number, ()))
        for number, text in enumerate(texts)
    ]


def _score(text: str, references: Sequence[str]) -> str:
    """Scores of a prediction in one line, of its first ``COMPARED`` characters."""
    scores: dict[str, float] = {}
    for metric in map(load_metric, _METRICS):
        values = metric.scores([text[:COMPARED]], [[reference[:COMPARED] for reference in references]])
        scores |= {key.removeprefix("rouge/"): float(value[0]) for key, value in values.items()}
    return ", ".join(f"{key} {value:.1f}" for key, value in scores.items())


def _plain(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= 200 else text[:200] + " …"


def _describe_cut(rendered: Rendered) -> str:
    """Say how many tokens a task cut from the only pair of a batch."""
    cut = [int(part[0]) for part in (rendered.cut.query, rendered.cut.documents, rendered.cut.target)]
    names = ("query", "documents", "target")
    lost = ", ".join(f"{count:,} of the {name}" for count, name in zip(cut, names, strict=True) if count)
    return f"tokens cut: {lost}" if lost else "nothing is cut"


def check_answers(systems: Sequence[System]) -> None:
    """Check that several systems answer the same pairs."""
    first = systems[0].predictions
    for system in systems[1:]:
        other = system.predictions
        if (other.split, other.manifest.parent) != (first.split, first.manifest.parent):
            raise FarspanError(f"{other.folder}: answers other pairs than {first.folder}; view them one by one")
