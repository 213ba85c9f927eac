"""The content of a page about one row: plain data, without markup.

Every longer text is a *block*: the page holds a range of it, and requests for more name it by its address.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Protocol

import numpy as np
import pyarrow as pa

from corpora.errors import FarspanError
from corpora.tokenizers.protocol import Tokenizer
from pipelines.pages.piece import Kind, Piece

FIRST = 1_000  # maximum tokens or characters of a block in a new page
MORE = 8_000  # maximum tokens or characters sent per request for more
PARTS = 100  # maximum parts of a row in a page
REASONS = 400  # maximum spans listed with their reasons
BEGINNING = 40  # tokens of a row's text in a table
ALL, SOME, FEW = 131_072, 16_384, 256
"""Rows that a column is read for, by its cost; of a longer artefact, a sample of as many is read in whole batches."""


@dataclass(frozen=True, slots=True)
class PageOptions:
    """Options of the page of a row, from its address."""

    draw: int = 0  # number of the draw, for mask sets with several
    first_part: int = 0  # first part to show, for a row with more than `parts` parts
    parts: int = PARTS  # maximum number of parts
    size: int = FIRST  # maximum number of tokens or characters of a text
    beginning: int = FIRST  # the same for each document of a pair
    reasons: int = REASONS  # maximum number of spans that are listed with their reasons

    def shown_parts(self, count: int) -> range:
        """Numbers of the parts to show of a row with ``count`` of them."""
        first = min(max(self.first_part, 0), max(count - 1, 0))
        return range(first, min(first + self.parts, count))


@dataclass(frozen=True)
class Block:
    """A range of a text, whose pieces are read on first use."""

    address: str  # name of the text in its row, e.g. `text-0-3`: mask set 0, part 3
    heading: str
    note: str
    total: int  # length of the text
    # function from the start and stop of a range to its pieces
    read: Callable[[int, int], Iterable[Piece]] = field(repr=False, compare=False)
    # `(total,)` token ids; None if the unit is characters, or if positions are left out
    tokens: np.ndarray | None = field(default=None, repr=False, compare=False)
    unit: str = "tokens"  # unit of these numbers: `tokens`, `positions` or `characters`
    look: str = "prose"  # `prose`, or `model` for the input of a model
    part: int | None = None  # number of the part if the text is a part of the row, from 0; else None
    title: str = ""  # title of the document, at most a few hundred characters; empty if there is none
    start: int = 0
    stop: int = 0

    def cut(self, start: int, size: int) -> Block:
        """Return the range of at most ``size`` from ``start`` on."""
        start = min(max(start, 0), self.total)
        return replace(self, start=start, stop=min(start + size, self.total))

    @cached_property
    def pieces(self) -> tuple[Piece, ...]:
        return tuple(self.read(self.start, self.stop))

    @property
    def ids(self) -> np.ndarray | None:
        """``(stop - start,)`` token ids of the range."""
        return None if self.tokens is None else self.tokens[self.start : self.stop]


@dataclass(frozen=True, slots=True)
class Part:
    """The piece of a document that lies in a row."""

    document_id: str  # `source:path:record`
    start: int  # first and last + 1 token in the row
    stop: int
    offset: int  # first token in the document
    document_length: int  # tokens of the whole document
    title: str | None = None  # title of the document; None if it has none or is not looked up

    @property
    def place(self) -> str:
        """Tokens of its document, in words."""
        return f"tokens {self.offset} to {self.offset + self.stop - self.start} of {self.document_length}"


@dataclass(frozen=True, slots=True)
class Reason:
    """The reason for the choice of a span: its rank, score and label, each None if the objective records none."""

    span: int  # number of the span in the mask row
    rank: int | None  # order of selection, from 0
    score: float | None
    label: str | None
    start: int  # first and last + 1 token in the row
    stop: int
    kind: Kind  # treatment of the span
    part: int = 0  # number of its part from 0, and the beginning of its text
    text: str = ""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the page: the row with one mask set, or one text."""

    heading: str
    note: str  # remark in one line
    blocks: tuple[Block, ...]
    objective: str = ""  # name of the mask set's objective, and its options in one line
    options: str = ""
    share: float = 0.0  # percentage of the row's tokens in targets or labels
    number: int = -1  # number of the mask set; -1 if there is none
    kinds: tuple[Kind, ...] = ()  # treatments of the spans, for the legend
    # runs of spans of one kind, as (first bin, bins, kind), of a picture of the whole row in `bins` bins
    picture: tuple[tuple[int, int, Kind], ...] = ()
    bins: int = 0
    reasons: tuple[Reason, ...] = ()  # reasons of the spans, in the order of their choice
    more_reasons: int = 0  # number of reasons left out
    seen: tuple[Block, ...] = ()  # source and target, labels, or a stream


@dataclass(frozen=True, slots=True)
class Link:
    """A part's relation to the documents before it in a linked row."""

    # inner product with the part before it, by which documents are linked; None for the first part, and if
    # neither lists the other as a neighbour
    similarity: float | None = None
    cosine: float | None = None  # the same divided by the norms
    to_first: float | None = None  # inner product with the first part; None likewise
    jaccard: float | None = None  # Jaccard similarity with the part before it, by word 5-grams
    # ids and similarities of documents that were not put beside it, or were left out, as near-duplicates of it
    near_duplicates: tuple[tuple[str, float | None], ...] = ()


@dataclass(frozen=True, slots=True)
class RowPage:
    """The content of a row's page."""

    row: int
    heading: str  # kind and number of the row
    facts: tuple[tuple[str, str], ...]  # names and values of properties of the row
    bands: tuple[tuple[Column, ...], ...]  # groups of columns; the columns of a group stand side by side
    tokens: int = 0
    parts: tuple[Part, ...] = ()  # parts of the row in the page, from number `first_part` on
    first_part: int = 0
    all_parts: int = 0  # number of parts of the row
    links: tuple[Link, ...] = ()  # link of each of these parts, if the corpus is linked and its neighbours are known
    missing: tuple[str, ...] = ()  # messages about content that cannot be shown

    def find(self, address: str) -> tuple[Column, Block]:
        """Return a block with its column; FarspanError if there is none."""
        for column in (column for band in self.bands for column in band):
            for block in (*column.blocks, *column.seen):
                if block.address == address:
                    return column, block
        raise FarspanError(f"no text {address!r} in this row")


@dataclass(frozen=True, slots=True)
class Measure:
    """A property of each row: a column of the table."""

    key: str  # name in addresses
    title: str  # heading of the column
    # function from the first and last + 1 row in one batch to their values, `(n,)` float64, nan for none; or
    # `(n,)` objects of str
    read: Callable[[int, int], np.ndarray]
    rows: int = ALL  # maximum number of rows to read at once
    decimals: int | None = 0  # digits after the point; None for names
    filters: tuple[str, ...] = ()  # parameters of the filter that bound it, least and most; for names, one
    fixed: tuple[tuple[str, str], ...] = ()  # further parameters of such a filter


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
        measures: columns of the table of its rows.
    """

    name: str
    kind: str
    folder: str
    tokenizer: Tokenizer
    summary: str
    draws: int
    mask_sets: tuple[str, ...]
    sources: tuple[str, ...]
    measures: tuple[Measure, ...]

    def __len__(self) -> int: ...

    def page(self, row: int, options: PageOptions) -> RowPage:
        """Return the content of the page of row ``row``, which exists."""

    def batch_of(self, row: int) -> tuple[int, int]:
        """Return the first and last + 1 of the rows that are read together with ``row``."""

    def ids(self, start: int, stop: int) -> tuple[pa.Array, pa.Array]:
        """Return the ids of the rows of one batch, ``(n,)`` str, and the list of its documents' ids of each."""

    def beginning(self, row: int) -> tuple[str, str]:
        """Return the id of a row, and the beginning of its text."""

    def texts(self, row: int) -> Iterable[tuple[int, str]]:
        """Return the texts in which a filter's text is searched, piece by piece, as (number of tokens, text)."""
