"""Pairs as pages: question, answers and documents, and predictions beside the references."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from corpora.errors import FarspanError
from corpora.printing import counted
from corpora.schemas.pairs import PairSet
from corpora.schemas.predictions import PredictionSet
from corpora.tokenizers.load import load_tokenizer_of
from objectives.api.special_tokens import SpecialTokens
from objectives.metrics.load import load_metric
from objectives.tasks.protocol import NO_TARGET, Rendered
from pipelines.evaluation.shared_words import nearest_reference, shared_words
from pipelines.pages.document_rows import document_block, document_tokens
from pipelines.pages.filters import Filter, within
from pipelines.pages.page import (
    Block,
    Column,
    PageOptions,
    RowPage,
    bounds,
    no_block,
    string_block,
)
from pipelines.pages.piece import Piece
from pipelines.pages.row import Side, seen_pieces, sides_of
from pipelines.pages.task import ChosenTask, cut_in_words

_COMPARED = 20_000  # maximum characters of a prediction and of a reference whose words are compared
_METRICS = ("rouge:scrolls", "f1")


@dataclass(frozen=True)
class System:
    """The predictions of one system, under the name of their folder."""

    name: str
    predictions: PredictionSet

    def prediction(self, row: int) -> dict[str, Any]:
        """Read row ``row`` of the predictions."""
        shard, batch, inside = (int(column[0]) for column in self.predictions.locate(np.array([row])))
        (values,) = self.predictions.batch(shard, batch).slice(inside, 1).to_pylist()
        return values


@dataclass(frozen=True)
class _Pair:
    """A pair that was read, the predictions for it, and the source and target that a task makes of it."""

    values: dict[str, Any]
    answers: tuple[dict[str, Any], ...]
    sides: list[Side]
    cut: str


@dataclass(frozen=True)
class Samples:
    """Pairs as a task renders them.

    Attributes:
        heading: name of the task.
        special: special tokens of the task.
        places: ``(n,)`` int64, row of each sample in the pairs.
        rendered: function that renders a sample, given its number.
    """

    heading: str
    special: SpecialTokens
    places: np.ndarray
    rendered: Callable[[int], Rendered]


class PairRows:
    """A ``Subject``: pairs, samples of them, or the predictions of one or more systems for the pairs of one split."""

    draws = 1
    mask_sets: tuple[str, ...] = ()

    def __init__(
        self,
        name: str,
        pairs: PairSet,
        systems: Sequence[System] = (),
        task: ChosenTask | None = None,
        samples: Samples | None = None,
    ) -> None:
        self.name = name
        self.kind = "predictions" if systems else "pairs"
        self.folder = systems[0].predictions.folder if systems else pairs.folder
        self._pairs, self._systems = pairs, tuple(systems)
        self.tokenizer = load_tokenizer_of(pairs.folder)
        self.sources = sorted(pairs.documents.manifest.counts)
        self._places = pairs.rows_of(systems[0].predictions.split) if systems else np.arange(len(pairs))
        self._samples = samples
        if samples:
            self._places = samples.places
        elif task:
            self._samples = Samples(
                task.heading, task.special, self._places, lambda row: _first_target(pairs, self._places[row], task)
            )
        split = f" of split {systems[0].predictions.split}" if systems else ""
        self.described = f"{counted(len(self._places), 'pair')}{split}, {counted(len(pairs.documents), 'document')}"
        self._pair = lru_cache(maxsize=16)(self._read)

    def __len__(self) -> int:
        return len(self._places)

    def _read(self, row: int) -> _Pair:
        place = int(self._places[row])
        (values,) = self._pairs.table([place]).to_pylist()
        answers = tuple(system.prediction(row) for system in self._systems)
        if not self._samples:
            return _Pair(values, answers, [], "")
        rendered = self._samples.rendered(row)
        return _Pair(values, answers, sides_of(rendered.examples), cut_in_words(rendered))

    def page(self, row: int, options: PageOptions) -> RowPage:
        pair = self._pair(row)
        values = pair.values
        facts = [
            ("pair", values["pair_id"]),
            ("split", values["split"]),
            ("documents", f"{len(values['document_ids']):,}"),
        ]
        facts += [(name, _plain(value)) for name, value in json.loads(values["attributes"]).items()]
        bands = []
        if self._systems:
            predictions = (self._prediction(row, each, options.size) for each in range(len(self._systems)))
            bands.append((self._references(row, options.size), *predictions))
        bands.append(tuple(column for column in self._question(row, options.size) if column.blocks))
        if pair.sides:
            assert self._samples
            seen = tuple(self._block(row, f"seen-{number}", 0, options.size) for number in range(len(pair.sides)))
            bands.append((Column(self._samples.heading, pair.cut, (), seen=seen),))
        first = min(max(options.first_part, 0), max(len(values["document_ids"]) - 1, 0))
        names = range(first, min(first + options.parts, len(values["document_ids"])))
        documents = tuple(self._block(row, f"document-{number}", 0, options.beginning) for number in names)
        bands.append((Column("documents", "", documents),))
        kind = "prediction" if self._systems else "pair"
        return RowPage(
            row,
            f"{kind} {row:,} of {len(self) - 1:,}",
            tuple(facts),
            tuple(band for band in bands if band),
            first_part=first,
            all_parts=len(values["document_ids"]),
        )

    def _references(self, row: int, size: int) -> Column:
        count = len(self._pair(row).values["references"])
        note = f"words shared with {self._systems[0].name} are marked" if count else "the pair has none"
        return Column(
            "reference" if count == 1 else "references",
            note,
            tuple(self._block(row, f"reference-{number}", 0, size) for number in range(count)),
        )

    def _prediction(self, row: int, system: int, size: int) -> Column:
        pair, name = self._pair(row), self._systems[system].name
        answer, references = pair.answers[system], pair.values["references"]
        note = f"{counted(len(answer['tokens']), 'token')}, score {answer['score']:.4f}"
        if references:
            scores: dict[str, float] = {}
            for metric in map(load_metric, _METRICS):
                short = [[text[:_COMPARED] for text in references]]
                values = metric.scores([answer["text"][:_COMPARED]], short)
                scores |= {key.removeprefix("rouge/"): float(value[0]) for key, value in values.items()}
            note += " — " + ", ".join(f"{key} {value:.1f}" for key, value in scores.items())
        return Column(name, note, (self._block(row, f"prediction-{system}", 0, size),))

    def _question(self, row: int, size: int) -> list[Column]:
        values = self._pair(row).values
        query = (self._block(row, "query-0", 0, size),) if values["query"] else ()
        options = tuple(self._block(row, f"option-{n}", 0, size) for n in range(len(values["options"] or ())))
        targets = tuple(self._block(row, f"target-{n}", 0, size) for n in range(len(values["targets"])))
        references: tuple[Block, ...] = ()
        if not self._systems:
            references = tuple(self._block(row, f"reference-{n}", 0, size) for n in range(len(values["references"])))
        return [
            Column("question", "", (*query, *options)),
            Column("targets", "", targets),
            Column("references", "", references),
        ]

    def block(self, row: int, address: str, start: int, size: int, options: PageOptions) -> Block:
        return self._block(row, address, start, size)

    def _block(self, row: int, address: str, start: int, size: int) -> Block:
        pair = self._pair(row)
        what, _, last = address.partition("-")
        try:
            number = int(last)
            if number < 0:
                raise no_block(address)
            if what == "query":
                return self._tokens(address, "query", pair.values["query"], start, size)
            if what in ("option", "target"):
                return self._tokens(address, f"{what} {number}", pair.values[f"{what}s"][number], start, size)
            if what == "document":
                name, own = (pair.values[column][number] for column in ("document_ids", "document_rows"))
                tokens = document_tokens(self._pairs.documents, own)
                title = self._pairs.documents.title(own)
                return document_block(address, name, self.tokenizer, tokens, start, size, number, title)
            if what == "seen":
                return self._seen(address, pair.sides[number], start, size)
            if what == "reference":
                text = pair.values["references"][number]
                return _comparison_block(address, f"reference {number}", text, start, size, self._other(pair, number))
            if what == "prediction":
                nearest = nearest_reference(pair.answers[number]["text"][:_COMPARED], _short(pair.values["references"]))
                other = pair.values["references"][nearest] if nearest >= 0 else None
                beside = f"beside reference {nearest}" if nearest >= 0 else ""
                return _comparison_block(address, beside, pair.answers[number]["text"], start, size, other)
        except (ValueError, IndexError, TypeError):
            pass
        raise no_block(address)

    def _other(self, pair: _Pair, reference: int) -> str | None:
        """The text to compare a reference with: the first prediction if the reference is its nearest, else None."""
        if not pair.answers:
            return None
        text = pair.answers[0]["text"]
        nearest = nearest_reference(text[:_COMPARED], _short(pair.values["references"]))
        return text if nearest == reference else None

    def _tokens(self, address: str, heading: str, ids: Sequence[int], start: int, size: int) -> Block:
        return document_block(address, heading, self.tokenizer, np.asarray(ids, np.int64), start, size, None)

    def _seen(self, address: str, side: Side, start: int, size: int) -> Block:
        assert self._samples
        start, stop = bounds(start, len(side.ids), size)
        ids, marked = side.ids[start:stop], side.marked[start:stop]
        pieces = tuple(seen_pieces(ids, self.tokenizer, self._samples.special.ids, marked, start))
        total = len(side.ids)
        return Block(address, side.name, side.described, pieces, start, stop, total, "positions", "model", ids=ids)

    def batch_of(self, row: int) -> tuple[int, int]:
        size = self._pairs.manifest.rows_per_batch
        first = row // size * size
        return first, min(first + size, len(self))

    def matches(self, start: int, stop: int, wanted: Filter) -> np.ndarray:
        fits = np.ones(stop - start, bool)
        columns = ["pair_id", "document_ids", "document_rows"]
        table = self._pairs.table(self._places[start:stop]).select(columns)
        for place, values in enumerate(table.to_pylist()):
            names = values["document_ids"]
            if wanted.source:
                fits[place] &= any(name.startswith(wanted.source + ":") for name in names)
            if wanted.id:
                fits[place] &= any(wanted.id in name for name in (values["pair_id"], *names))
            if fits[place] and (wanted.least is not None or wanted.most is not None):
                tokens = sum(len(document_tokens(self._pairs.documents, own)) for own in values["document_rows"])
                fits[place] &= within(np.array([tokens]), wanted.least, wanted.most)[0]
        return fits

    def texts(self, row: int) -> Iterator[tuple[int, str]]:
        """Question, options, references and predictions; not the documents."""
        pair = self._pair(row)
        for ids in (pair.values["query"], *(pair.values["options"] or ())):
            yield len(ids), self.tokenizer.decode(ids)
        for text in (*pair.values["references"], *(answer["text"] for answer in pair.answers)):
            yield len(text) // 4, text


def _comparison_block(address: str, heading: str, text: str, start: int, size: int, other: str | None) -> Block:
    """A range of a string as a block; at its beginning, the words that it shares with ``other`` are marked."""
    if other is None or start or len(text) > _COMPARED:
        return string_block(address, heading, "", text, start, size)
    pieces: list[Piece] = []
    for piece in shared_words(text, other[:_COMPARED]):
        if piece.start >= size:
            break
        pieces.append(Piece(piece.text[: size - piece.start], piece.kind, piece.start))
    stop = min(size, len(text))
    return Block(address, heading, "", tuple(pieces), 0, stop, len(text), "characters")


def _short(references: Sequence[str]) -> list[str]:
    return [text[:_COMPARED] for text in references]


def _plain(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= 200 else text[:200] + " …"


def check_answers(systems: Sequence[System]) -> None:
    """Check that several systems answer the same pairs."""
    first = systems[0].predictions
    for system in systems[1:]:
        own = system.predictions
        if (own.split, own.manifest.parent) != (first.split, first.manifest.parent):
            raise FarspanError(f"{own.folder}: answers other pairs than {first.folder}; view them one by one")


def _first_target(pairs: PairSet, row: int, task: ChosenTask) -> Rendered:
    """Render a pair with its first target, if it has one."""
    batch = pairs.take([row])
    return task.task.render(batch, np.array([0 if len(batch.targets) else NO_TARGET]), task.special)
