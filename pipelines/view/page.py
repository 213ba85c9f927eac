"""The content of a page about one row: plain data, without markup.

Every longer text is a *block*: a range of it is in the page, and its address names it when more is asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from corpora.errors import FarspanError
from corpora.tokenizers.protocol import Tokenizer
from pipelines.inspect.pieces import Kind, Part, Piece, Reason
from pipelines.view.filters import Filter

FIRST = 1_000  # tokens or characters of a block that a page has
MORE = 8_000  # that are sent when more is asked for
PARTS = 100  # parts of a row in a page
REASONS = 400  # spans listed with their reasons
SAID = 80  # characters of a span beside its reason


@dataclass(frozen=True, slots=True)
class Asked:
    """Options of a row in the page's address, besides its number.

    Attributes:
        draw: of mask sets with several draws.
        first_part: of a row with more than ``PARTS`` parts, the first one in the page.
    """

    draw: int = 0
    first_part: int = 0


@dataclass(frozen=True, slots=True)
class Block:
    """A range of a text.

    Attributes:
        address: names the text in its row, e.g. ``text-0-3``: mask set 0, part 3.
        pieces: the range ``start:stop`` of the text.
        total: length of the text.
        unit: what these numbers count.
        look: ``prose``, or ``model`` for what a model gets.
        part: number of the part of the row that it is, from 0; None for other texts.
        ids: ``(stop - start,)`` ids of its tokens; None of characters.
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
        note: about it, in one line.
        options: of the objective of its mask set.
        number: of its mask set; of others -1.
        kinds: the treatments of its spans, for the legend.
        density: ``(bins,)`` the kind of the spans in each part of the row, for a picture of the whole row; None where
            there are none.
        whys: reasons of the spans, in the order of their choice; ``more_whys`` are left out.
        seen: source and target.
    """

    heading: str
    note: str
    blocks: tuple[Block, ...]
    options: str = ""
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
        similarity: inner product with the part before it, by which documents are linked; None where neither lists the
            other as neighbour, and for the first.
        cosine: likewise, divided by the norms.
        to_first: inner product with the first part, likewise.
        jaccard: share of common word 5-grams with the part before it.
        near_duplicates: ids of documents kept apart from it, or left out for it, with their similarity.
    """

    similarity: float | None = None
    cosine: float | None = None
    to_first: float | None = None
    jaccard: float | None = None
    near_duplicates: tuple[tuple[str, float | None], ...] = ()


@dataclass(frozen=True, slots=True)
class RowPage:
    """A row.

    Attributes:
        heading, facts: what it is, and short statements about it.
        bands: groups of columns; those of a group stand side by side.
        parts: its documents from ``first_part`` on, ``all_parts`` in number.
        links: of each of these parts, where the row is of a linked corpus and its neighbours are known.
        missing: why something that belongs here cannot be shown.
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
    """An artefact with what is laid beside it: its rows as pages.

    Attributes:
        name: its part of the address.
        kind: ``corpus``, ``documents``, ``pairs`` or ``predictions``.
        folder: the artefact's.
        tokenizer: of all its texts.
        described: number of rows and size, in words.
        draws: draws of its mask sets.
        mask_sets: names of its mask sets.
        sources: names of the sources of its documents.
    """

    @property
    def name(self) -> str: ...

    @property
    def kind(self) -> str: ...

    @property
    def folder(self) -> str: ...

    @property
    def tokenizer(self) -> Tokenizer: ...

    @property
    def described(self) -> str: ...

    @property
    def draws(self) -> int: ...

    @property
    def mask_sets(self) -> Sequence[str]: ...

    @property
    def sources(self) -> Sequence[str]: ...

    def __len__(self) -> int: ...

    def page(self, row: int, asked: Asked) -> RowPage:
        """The content of row ``row``, which exists."""

    def block(self, row: int, address: str, start: int, size: int, asked: Asked) -> Block:
        """At most ``size`` tokens or characters of a block from ``start`` on.

        Raises:
            FarspanError: no such block.
        """

    def batch_of(self, row: int) -> tuple[int, int]:
        """First and last + 1 of the rows that are read together with ``row``."""

    def matches(self, start: int, stop: int, wanted: Filter) -> np.ndarray:
        """``(stop - start,)`` bool: rows of one batch that a filter wants, but for its text."""

    def texts(self, row: int) -> Iterable[tuple[int, str]]:
        """The texts that a filter's text is looked for in, each as (tokens, text), piece by piece."""


def bounds(start: int, total: int, size: int) -> tuple[int, int]:
    """``start`` and the end of a range of at most ``size`` from there, inside of ``total``."""
    start = min(max(start, 0), total)
    return start, min(start + size, total)


def string_block(address: str, heading: str, note: str, text: str, start: int = 0, size: int = FIRST) -> Block:
    """A range of a string as a block."""
    start, stop = bounds(start, len(text), size)
    return Block(
        address, heading, note, (Piece(text[start:stop], "text", start),), start, stop, len(text), "characters"
    )


def no_block(address: str) -> FarspanError:
    return FarspanError(f"no text {address!r} in this row")
