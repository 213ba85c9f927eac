"""Pairs as pages: question, answers and documents, and predictions beside the references."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import numpy as np
import pyarrow.compute as pc

from corpora.errors import FarspanError
from corpora.printing import format_count
from corpora.schemas.pairs import PairSet
from corpora.schemas.predictions import PredictionSet
from corpora.tokenizers.load import load_tokenizer_of
from objectives.metrics.load import load_metric
from pipelines.pages.blocks import no_block, side_block, string_block, token_block
from pipelines.pages.document_rows import document_tokens
from pipelines.pages.filters import Filter, read_rows, within
from pipelines.pages.measures import SOME, Measure
from pipelines.pages.page import BEGINNING, Block, Column, PageOptions, RowPage
from pipelines.pages.piece import Piece
from pipelines.pages.rendering import Rendering, describe_cut
from pipelines.pages.row import Side, sides_of
from pipelines.pages.shared_words import nearest_reference, shared_words

_COMPARED = 20_000  # maximum characters of a prediction and of a reference whose words are compared
_METRICS = ("rouge:scrolls", "f1")


@dataclass(frozen=True)
class System:
    """The predictions of one system, under the name of their folder."""

    name: str
    predictions: PredictionSet


@dataclass(frozen=True)
class _Pair:
    """A pair that was read, the predictions for it, and the source and target that a task makes of it."""

    values: dict[str, Any]
    answers: tuple[dict[str, Any], ...]
    sides: list[Side]
    cut: str

    def nearest(self, system: int) -> int:
        """Number of the reference that is nearest to a system's prediction; -1 if there are no references."""
        references = [text[:_COMPARED] for text in self.values["references"]]
        return nearest_reference(self.answers[system]["text"][:_COMPARED], references)


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
        """
        Args:
            rendering: renders source and target of each pair; None shows none.
            places: ``(n,)`` int64, row of each page in the pairs; None for all of them, or those of the systems' split.
        """
        self.name = name
        self.kind = "predictions" if systems else "pairs"
        self.folder = systems[0].predictions.folder if systems else pairs.folder
        self._pairs, self._systems, self._rendering = pairs, tuple(systems), rendering
        self.tokenizer = load_tokenizer_of(pairs.folder)
        self.sources = tuple(sorted(pairs.documents.manifest.counts))
        if places is None:
            places = pairs.rows_of(systems[0].predictions.split) if systems else np.arange(len(pairs))
        self._places = places
        split = f" of split {systems[0].predictions.split}" if systems else ""
        self.summary = f"{format_count(len(places), 'pair')}{split}, {format_count(len(pairs.documents), 'document')}"
        self._pair = lru_cache(maxsize=16)(self._read)

    def __len__(self) -> int:
        return len(self._places)

    def _read(self, row: int) -> _Pair:
        place = int(self._places[row])
        (values,) = self._pairs.table([place]).to_pylist()
        answers = tuple(read_rows(one.predictions, row, row + 1).to_pylist()[0] for one in self._systems)
        if not self._rendering:
            return _Pair(values, answers, [], "")
        rendered = self._rendering.render(row, place)
        return _Pair(values, answers, sides_of(rendered.examples), describe_cut(rendered))

    def page(self, row: int, options: PageOptions) -> RowPage:
        pair = self._pair(row)
        values, documents = pair.values, len(pair.values["document_ids"])
        facts = [("pair", values["pair_id"]), ("split", values["split"]), ("documents", f"{documents:,}")]
        facts += [(name, _plain(value)) for name, value in json.loads(values["attributes"]).items()]
        bands = [self._predictions(row, options.size), self._question(row, options.size)]
        if self._rendering:
            seen = self._blocks(row, "seen", range(len(pair.sides)), options.size)
            bands.append([Column(self._rendering.heading, pair.cut, (), seen=seen)])
        first = min(max(options.first_part, 0), max(documents - 1, 0))
        numbers = range(first, min(first + options.parts, documents))
        bands.append([Column("documents", "", self._blocks(row, "document", numbers, options.beginning))])
        kind = "prediction" if self._systems else "pair"
        return RowPage(
            row,
            f"{kind} {row:,} of {len(self):,}",
            tuple(facts),
            tuple(tuple(band) for band in bands if band),
            first_part=first,
            all_parts=documents,
        )

    def _blocks(self, row: int, what: str, numbers: Iterable[int], size: int) -> tuple[Block, ...]:
        return tuple(self._block(row, f"{what}-{number}", 0, size) for number in numbers)

    def _predictions(self, row: int, size: int) -> list[Column]:
        """The references, and beside them the prediction of each system."""
        if not self._systems:
            return []
        pair = self._pair(row)
        references = pair.values["references"]
        note = f"words shared with {self._systems[0].name} are marked" if references else "the pair has none"
        heading = "reference" if len(references) == 1 else "references"
        columns = [Column(heading, note, self._blocks(row, "reference", range(len(references)), size))]
        for number, (system, answer) in enumerate(zip(self._systems, pair.answers, strict=True)):
            note = f"{format_count(len(answer['tokens']), 'token')}, score {answer['score']:.4f}"
            if references:
                note += f" — {_score(answer['text'], references)}"
            columns.append(Column(system.name, note, self._blocks(row, "prediction", [number], size)))
        return columns

    def _question(self, row: int, size: int) -> list[Column]:
        """Question, targets and references, as far as the pair has them."""
        values = self._pair(row).values
        counts = {
            "query": int(bool(values["query"])),
            "option": len(values["options"] or ()),
            "target": len(values["targets"]),
            "reference": 0 if self._systems else len(values["references"]),
        }
        blocks = {what: self._blocks(row, what, range(count), size) for what, count in counts.items()}
        columns = [
            Column("question", "", blocks["query"] + blocks["option"]),
            Column("targets", "", blocks["target"]),
            Column("references", "", blocks["reference"]),
        ]
        return [column for column in columns if column.blocks]

    def block(self, row: int, address: str, start: int, size: int, options: PageOptions) -> Block:
        return self._block(row, address, start, size)

    def _block(self, row: int, address: str, start: int, size: int) -> Block:
        what, _, number = address.partition("-")
        try:
            if int(number) < 0:
                raise no_block(address)
            return self._find_block(self._pair(row), address, what, int(number), start, size)
        except (ValueError, IndexError, TypeError):
            raise no_block(address) from None

    def _find_block(self, pair: _Pair, address: str, what: str, number: int, start: int, size: int) -> Block:
        values = pair.values
        match what:
            case "query":
                return token_block(address, what, self.tokenizer, np.array(values["query"], np.int64), start, size)
            case "option" | "target":
                ids = np.array(values[f"{what}s"][number], np.int64)
                return token_block(address, f"{what} {number}", self.tokenizer, ids, start, size)
            case "document":
                documents, document_row = self._pairs.documents, values["document_rows"][number]
                name, title = values["document_ids"][number], documents.title(document_row)
                tokens = document_tokens(documents, document_row)
                return token_block(address, name, self.tokenizer, tokens, start, size, number, title)
            case "seen" if self._rendering:
                side, special = pair.sides[number], self._rendering.special
                return side_block(address, side, self.tokenizer, special, start, size)
            case "reference":
                text, other = values["references"][number], None
                if pair.answers and pair.nearest(0) == number:
                    other = pair.answers[0]["text"]
                return _comparison_block(address, f"reference {number}", text, start, size, other)
            case "prediction":
                text, nearest = pair.answers[number]["text"], pair.nearest(number)
                if nearest < 0:
                    return _comparison_block(address, "", text, start, size, None)
                other = values["references"][nearest]
                return _comparison_block(address, f"beside reference {nearest}", text, start, size, other)
        raise no_block(address)

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
                fits[place] &= within(self._tokens(values["document_rows"]), wanted.least, wanted.most)[0]
        return fits

    @property
    def measures(self) -> tuple[Measure, ...]:
        columns = [
            Measure("query", "question tokens", partial(self._column, "query")),
            Measure("tokens", "document tokens", self._document_tokens, SOME, filters=("least", "most")),
            Measure("references", "references", partial(self._column, "references")),
            Measure("split", "split", partial(self._column, "split"), decimals=None),
        ]
        for number, system in enumerate(self._systems):
            read = partial(self._f1, system.predictions)
            columns.append(Measure(f"f1-{number}", f"F1, {system.name}", read, SOME, 1))
        return tuple(columns)

    def _column(self, name: str, start: int, stop: int) -> np.ndarray:
        """The splits of pairs, or the lengths of the lists of a column."""
        column = self._pairs.table(self._places[start:stop]).column(name)
        if name == "split":
            return np.array(column.to_pylist(), object)
        lengths: np.ndarray = pc.list_value_length(column).to_numpy().astype(np.float64)
        return lengths

    def _tokens(self, documents: Iterable[int]) -> np.ndarray:
        """Number of tokens of documents together, ``(1,)``."""
        return np.array([sum(len(document_tokens(self._pairs.documents, row)) for row in documents)])

    def _document_tokens(self, start: int, stop: int) -> np.ndarray:
        rows = self._pairs.table(self._places[start:stop]).column("document_rows").to_pylist()
        return np.concatenate([self._tokens(documents) for documents in rows]).astype(np.float64)

    def _f1(self, predictions: PredictionSet, start: int, stop: int) -> np.ndarray:
        """F1 of the words of each prediction, nan without references."""
        texts = predictions.table(np.arange(start, stop)).column("text").to_pylist()
        references = self._pairs.table(self._places[start:stop]).column("references").to_pylist()
        known = [place for place, one in enumerate(references) if one]
        scores = np.full(stop - start, np.nan)
        if known:
            compared = [[texts[place][:_COMPARED] for place in known], [references[place] for place in known]]
            scores[known] = load_metric("f1").scores(*compared)["f1"]
        return scores

    def beginning(self, row: int) -> tuple[str, str]:
        pair = self._pair(row)
        texts = (piece for _, piece in self.texts(row) if piece)
        return pair.values["pair_id"], next(texts, "")[: 4 * BEGINNING]

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
        return string_block(address, heading, text, start, size)
    pieces: list[Piece] = []
    for piece in shared_words(text, other[:_COMPARED]):
        if piece.start >= size:
            break
        pieces.append(Piece(piece.text[: size - piece.start], piece.kind, piece.start))
    stop = min(size, len(text))
    return Block(address, heading, "", tuple(pieces), 0, stop, len(text), "characters")


def _score(text: str, references: Sequence[str]) -> str:
    """Scores of a prediction in one line, of its first ``_COMPARED`` characters."""
    scores: dict[str, float] = {}
    for metric in map(load_metric, _METRICS):
        values = metric.scores([text[:_COMPARED]], [[reference[:_COMPARED] for reference in references]])
        scores |= {key.removeprefix("rouge/"): float(value[0]) for key, value in values.items()}
    return ", ".join(f"{key} {value:.1f}" for key, value in scores.items())


def _plain(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= 200 else text[:200] + " …"


def check_answers(systems: Sequence[System]) -> None:
    """Check that several systems answer the same pairs."""
    first = systems[0].predictions
    for system in systems[1:]:
        other = system.predictions
        if (other.split, other.manifest.parent) != (first.split, first.manifest.parent):
            raise FarspanError(f"{other.folder}: answers other pairs than {first.folder}; view them one by one")
