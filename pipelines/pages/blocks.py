"""Ranges of texts as blocks of a page."""

from __future__ import annotations

import numpy as np

from corpora.errors import FarspanError
from corpora.printing import format_count
from corpora.tokenizers.protocol import Tokenizer
from objectives.api.special_tokens import SpecialTokens
from pipelines.pages.page import Block
from pipelines.pages.piece import Piece, plain_pieces
from pipelines.pages.row import Side, seen_pieces
from pipelines.pages.titles import shorten


def bounds(start: int, total: int, size: int) -> tuple[int, int]:
    """Limit the range of ``size`` from ``start`` on to ``0:total``; return its start and end."""
    start = min(max(start, 0), total)
    return start, min(start + size, total)


def string_block(address: str, heading: str, text: str, start: int, size: int) -> Block:
    """A range of a string as a block."""
    start, stop = bounds(start, len(text), size)
    return Block(address, heading, "", (Piece(text[start:stop], "text", start),), start, stop, len(text), "characters")


def token_block(
    address: str,
    heading: str,
    tokenizer: Tokenizer,
    tokens: np.ndarray,
    start: int,
    size: int,
    part: int | None = None,
    title: str | None = None,
) -> Block:
    """A range of ``(n,)`` tokens as a block; ``part`` and ``title`` are those of a document."""
    start, stop = bounds(start, len(tokens), size)
    pieces = tuple(plain_pieces(tokenizer, tokens, start, stop))
    note, ids = format_count(len(tokens), "token"), tokens[start:stop]
    return Block(address, heading, note, pieces, start, stop, len(tokens), part=part, ids=ids, title=shorten(title))


def side_block(address: str, side: Side, tokenizer: Tokenizer, special: SpecialTokens, start: int, size: int) -> Block:
    """A range of a source, target or labels as a block; each label is preceded by its position."""
    start, stop = bounds(start, len(side.ids), size)
    ids: np.ndarray | None = side.ids[start:stop]
    pieces: list[Piece] = []
    if side.places is None:
        pieces = seen_pieces(side.ids[start:stop], tokenizer, special.ids, side.marked[start:stop], start)
    else:
        ids = None
        for at in range(start, stop):
            text = tokenizer.decode(side.ids[at : at + 1]).strip()
            pieces += [Piece(f"{side.places[at]}", "special", at), Piece(f" {text}  ", "text", at, 1)]
    total = len(side.ids)
    return Block(address, side.name, side.note, tuple(pieces), start, stop, total, "positions", "model", ids=ids)


def no_block(address: str) -> FarspanError:
    """Make the error for the address of a text that the row does not have."""
    return FarspanError(f"no text {address!r} in this row")
