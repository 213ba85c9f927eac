"""Words that a prediction shares with a reference, marked in both."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from pipelines.pages.piece import Piece

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
