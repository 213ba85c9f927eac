"""The content of a page about one row: plain data, without markup.

Every longer text is a *block*: the page holds a range of it, and requests for more name it by its address.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from corpora.tokenizers.protocol import Tokenizer
from pipelines.pages.filters import Filter
from pipelines.pages.measures import Measure
from pipelines.pages.piece import Kind, Piece
from pipelines.pages.row import Part, Reason

FIRST = 1_000  # maximum tokens or characters of a block in a new page
MORE = 8_000  # maximum tokens or characters sent per request for more
PARTS = 100  # maximum parts of a row in a page
REASONS = 400  # maximum spans listed with their reasons
BEGINNING = 40  # tokens of a row's text in a table
SPAN_TEXT = 80  # maximum characters of a span beside its reason


@dataclass(frozen=True, slots=True)
class PageOptions:
    """Options of the page of a row, from its address.

    Attributes:
        draw: number of the draw, for mask sets with several.
        first_part: first part to show, for a row with more than ``parts`` parts.
        parts: maximum number of parts.
        size: maximum number of tokens or characters of a text.
        beginning: the same for each document of a pair.
        reasons: maximum number of spans that are listed with their reasons.
    """

    draw: int = 0
    first_part: int = 0
    parts: int = PARTS
    size: int = FIRST
    beginning: int = FIRST
    reasons: int = REASONS


@dataclass(frozen=True, slots=True)
class Block:
    """A range of a text.

    Attributes:
        address: name of the text in its row, e.g. ``text-0-3``: mask set 0, part 3.
        pieces: the range ``start:stop`` of the text.
        total: length of the text.
        unit: unit of these numbers: ``tokens``, ``positions`` or ``characters``.
        look: ``prose``, or ``model`` for the input of a model.
        part: number of the part if the text is a part of the row, from 0; else None.
        ids: ``(stop - start,)`` token ids of the range; None if the unit is characters.
        title: title of the document, at most a few hundred characters; empty if there is none.
    """

    address: str
    heading: str
    note: str
    pieces: tuple[Piece, ...]
    start: int
    stop: int
    total: int
    unit: str = "tokens"
    look: str = "prose"
    part: int | None = None
    ids: np.ndarray | None = None
    title: str = ""


@dataclass(frozen=True, slots=True)
class Why:
    """A span's reason, with the number of its part from 0 and the beginning of its text."""

    reason: Reason
    part: int
    text: str


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the page: the row with one mask set, or one text.

    Attributes:
        note: remark in one line.
        objective: name of the mask set's objective.
        options: options of the objective, in one line.
        share: percentage of the row's tokens in targets or labels.
        number: number of the mask set; -1 if there is none.
        kinds: treatments of the spans, for the legend.
        density: ``(bins,)`` kind of the spans in each of equal parts of the row, for a picture of the whole row; None
            for a part without spans.
        whys: reasons of the spans, in the order of their choice.
        more_whys: number of reasons left out.
        seen: source and target, labels, or a stream.
    """

    heading: str
    note: str
    blocks: tuple[Block, ...]
    objective: str = ""
    options: str = ""
    share: float = 0.0
    number: int = -1
    kinds: tuple[Kind, ...] = ()
    density: tuple[Kind | None, ...] = ()
    whys: tuple[Why, ...] = ()
    more_whys: int = 0
    seen: tuple[Block, ...] = ()


@dataclass(frozen=True, slots=True)
class Link:
    """A part's relation to the documents before it in a linked row.

    Attributes:
        similarity: inner product with the part before it, by which documents are linked; None for the first part, and
            if neither lists the other as a neighbour.
        cosine: the same divided by the norms.
        to_first: inner product with the first part; None likewise.
        jaccard: Jaccard similarity with the part before it, by word 5-grams.
        near_duplicates: ids and similarities of documents that were not put beside it, or were left out, as
            near-duplicates of it.
    """

    similarity: float | None = None
    cosine: float | None = None
    to_first: float | None = None
    jaccard: float | None = None
    near_duplicates: tuple[tuple[str, float | None], ...] = ()


@dataclass(frozen=True, slots=True)
class RowPage:
    """The content of a row's page.

    Attributes:
        heading: kind and number of the row.
        facts: names and values of properties of the row.
        bands: groups of columns; the columns of a group stand side by side.
        parts: parts of the row in the page, from number ``first_part`` on.
        all_parts: number of parts of the row.
        links: link of each of these parts, if the corpus is linked and its neighbours are known.
        missing: messages about content that cannot be shown.
    """

    row: int
    heading: str
    facts: tuple[tuple[str, str], ...]
    bands: tuple[tuple[Column, ...], ...]
    tokens: int = 0
    parts: tuple[Part, ...] = ()
    first_part: int = 0
    all_parts: int = 0
    links: tuple[Link, ...] = ()
    missing: tuple[str, ...] = ()


class Subject(Protocol):
    """Interface of an artefact, with mask sets or predictions beside it, whose rows are shown as pages.

    Attributes:
        name: name of the artefact in addresses.
        kind: ``corpus``, ``documents``, ``pairs``, ``predictions`` or ``update``.
        folder: folder of the artefact.
        tokenizer: tokenizer of all texts.
        summary: number of rows and size, in words.
        draws: number of draws of its mask sets.
        mask_sets: names of its mask sets.
        sources: names of the sources of its documents.
    """

    name: str
    kind: str
    folder: str
    tokenizer: Tokenizer
    summary: str
    draws: int
    mask_sets: tuple[str, ...]
    sources: tuple[str, ...]

    def __len__(self) -> int: ...

    @property
    def measures(self) -> tuple[Measure, ...]:
        """Columns of the table of its rows."""

    def page(self, row: int, options: PageOptions) -> RowPage:
        """Return the content of the page of row ``row``, which exists."""

    def block(self, row: int, address: str, start: int, size: int, options: PageOptions) -> Block:
        """Return at most ``size`` tokens or characters of a block from ``start`` on; FarspanError if there is none."""

    def batch_of(self, row: int) -> tuple[int, int]:
        """Return the first and last + 1 of the rows that are read together with ``row``."""

    def matches(self, start: int, stop: int, wanted: Filter) -> np.ndarray:
        """Return ``(stop - start,)`` bool: rows of one batch that fit a filter, whose text is not compared yet."""

    def beginning(self, row: int) -> tuple[str, str]:
        """Return the id of a row, and the beginning of its text."""

    def texts(self, row: int) -> Iterable[tuple[int, str]]:
        """Return the texts in which a filter's text is searched, piece by piece, as (number of tokens, text)."""
