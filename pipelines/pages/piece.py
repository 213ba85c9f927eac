"""Pieces of text with their treatment: the content that `farspan show` prints and `farspan view` draws.

Pieces have neither colours nor markup. Their text is as the tokenizer decodes it and may come from hostile documents,
so the code that writes it must escape it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from corpora.printing import printable
from corpora.tokenizers.protocol import Tokenizer

Kind = Literal["text", "hidden", "shown", "replaced", "candidate", "special", "shared", "boundary"]
"""Kind of a piece: plain text, a span by its treatment, a special token, words that another text has too, or a mark of
no token where a sentence begins."""

KINDS: Mapping[Kind, str] = {
    "hidden": "hidden",
    "shown": "visible, in target",
    "replaced": "replaced",
    "candidate": "candidate",
}
"""Treatment of a span -> its name in a legend."""

BRACKETS: Mapping[Kind, tuple[str, str]] = {
    "hidden": ("⟦⟧", "[[]]"),
    "shown": ("⟨⟩", "<>"),
    "replaced": ("⟪⟫", "<<>>"),
    "candidate": ("‹›", "{}"),
    "shared": ("[]", "[]"),
}
"""Kind of a piece -> the pair of brackets that replaces its colour, in Unicode and in ASCII."""

_SHOWN = 300  # maximum characters of a title
_AROUND = 4  # tokens decoded before and after a range of a text; no character consists of more


@dataclass(frozen=True, slots=True)
class Piece:
    """A run of tokens of one kind."""

    text: str
    kind: Kind = "text"
    start: int = 0  # position of its first token in its row, source or target
    tokens: int = 0  # number of its tokens
    span: int = -1  # number of its span in the mask row, -1 outside of spans
    # True if its positions in a source have global attention, are the prompt of a target, or have labels in a
    # stream
    marked: bool = False


def plain_pieces(
    tokenizer: Tokenizer, tokens: np.ndarray, start: int, stop: int, text: tuple[int, int] | None = None
) -> list[Piece]:
    """Tokens ``start:stop`` of ``(n,)`` tokens as one piece, or no piece for an empty range.

    ``text`` is first and last + 1 token of the text that contains the range; None for all n.
    """
    return list(cut_pieces(tokenizer, tokens, [start, stop], [("text", -1)], text or (0, len(tokens))))


def cut_pieces(
    tokenizer: Tokenizer,
    tokens: np.ndarray,
    edges: list[int],
    kinds: list[tuple[Kind, int]],
    text: tuple[int, int],
) -> Iterator[Piece]:
    """Cut a text at the token positions ``edges`` into pieces, with the kinds and spans ``kinds``.

    The pieces are decoded together, and with the tokens around them inside of ``text``, so that neither a character of
    several tokens nor a space at the beginning of a token is lost at an edge.
    """
    first, last = max(edges[0] - _AROUND, text[0]), min(edges[-1] + _AROUND, text[1])
    decoded, places = tokenizer.decode_with_offsets(tokens[first:last])
    characters = [int(places[edge - first]) if edge < last else len(decoded) for edge in edges]
    for number, (kind, span) in enumerate(kinds):
        if (count := edges[number + 1] - edges[number]) > 0:
            piece_text = decoded[characters[number] : characters[number + 1]]
            yield Piece(piece_text, kind, edges[number], count, span)


def token_pieces(tokenizer: Tokenizer, tokens: np.ndarray, pieces: list[Piece]) -> list[Piece]:
    """Cut pieces of ``(n,)`` tokens into single tokens; special tokens stay as they are."""
    singles: list[Piece] = []
    special = [(piece.start, piece.start + piece.tokens) for piece in pieces if piece.kind == "special"]
    for piece in pieces:
        if piece.kind == "special" or piece.tokens < 2:
            singles.append(piece)
            continue
        stop = piece.start + piece.tokens
        edges = list(range(piece.start, stop + 1))
        # the tokenizer does not know the special tokens of a mask set, so the text between two of them is decoded
        first = max((end for _, end in special if end <= piece.start), default=0)
        last = min((begin for begin, _ in special if begin >= stop), default=len(tokens))
        cut = cut_pieces(tokenizer, tokens, edges, [(piece.kind, piece.span)] * piece.tokens, (first, last))
        singles += [replace(each, marked=piece.marked) for each in cut]
    return singles


def shorten(title: str | None) -> str:
    """The first ``_SHOWN`` characters of a title; empty for None."""
    title = title or ""
    return title if len(title) <= _SHOWN else title[:_SHOWN] + " …"


def title_and_id(document_id: str, title: str | None) -> str:
    """A document in one line for a terminal: its id, after its title if it has one."""
    return printable(f"{shorten(title)} ({document_id})" if title else document_id)


COMPARED = 20_000  # maximum characters of a text whose words are compared
_WORD = re.compile(r"\w+")


def shared_words(text: str, other: str) -> list[Piece]:
    """Cut ``text`` into pieces; those of kind ``shared`` are words that ``other`` has, too, ignoring case.

    As in ROUGE-1, a word that ``other`` has n times is marked n times at most. White space between two marked words is
    marked, too.
    """
    unmatched = Counter(word.casefold() for word in _WORD.findall(other))
    edges = [0]
    pieces: list[Piece] = []
    for word in _WORD.finditer(text):
        folded = word[0].casefold()
        if unmatched[folded] <= 0:
            continue
        unmatched[folded] -= 1
        between = text[edges[-1] : word.start()]
        if pieces and pieces[-1].kind == "shared" and between.isspace():
            pieces[-1] = Piece(pieces[-1].text + between + word[0], "shared", pieces[-1].start)
        else:
            if between:
                pieces.append(Piece(between, "text", edges[-1]))
            pieces.append(Piece(word[0], "shared", word.start()))
        edges.append(word.end())
    if rest := text[edges[-1] :]:
        pieces.append(Piece(rest, "text", edges[-1]))
    return pieces


def nearest_reference(prediction: str, references: Sequence[str]) -> int:
    """Return the index of the reference that shares most words with a prediction, by F1; the first of equal ones.

    The index is -1 if there are no references.
    """
    best, score = -1, -1.0
    predicted = Counter(word.casefold() for word in _WORD.findall(prediction))
    for number, reference in enumerate(references):
        expected = Counter(word.casefold() for word in _WORD.findall(reference))
        words = predicted.total() + expected.total()
        f1 = 2 * (predicted & expected).total() / words if words else 0.0
        if f1 > score:
            best, score = number, f1
    return best


def compare(text: str, references: Sequence[str]) -> tuple[int, list[Piece]]:
    """Return the index of the nearest reference, -1 for none, and the text with the words marked that it shares."""
    short = [reference[:COMPARED] for reference in references]
    nearest = nearest_reference(text[:COMPARED], short)
    if nearest < 0 or len(text) > COMPARED:
        return nearest, [Piece(text)]
    return nearest, shared_words(text, short[nearest])
