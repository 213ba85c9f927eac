"""Check of a corpus that the parts of each document add up to the whole document."""

from __future__ import annotations

import numpy as np


def gaps(
    documents: np.ndarray,
    offsets: np.ndarray,
    sizes: np.ndarray,
    lengths: np.ndarray,
    overlap: int = 0,
    may_be_cut: bool = False,
) -> list[tuple[int, str]]:
    """Find documents whose parts do not add up.

    A document may be used several times, cut differently each time. It is complete if at every position inside it as
    many parts start as end.

    Returns one (part, fault) for each document with a fault, in order of documents.

    Args:
        documents: ``(p,)`` number of each part's document.
        offsets, sizes: ``(p,)`` start and length of each part in its document.
        lengths: ``(p,)`` tokens of each part's whole document.
        overlap: tokens that a part may share with the previous one. If not 0, every start needs an end at the same
            position or that many tokens later, and every end a start.
    """
    found: dict[int, tuple[int, str]] = {}

    def note(parts: np.ndarray, text: str, *values: np.ndarray) -> None:
        for part, *numbers in zip(parts.tolist(), *(column.tolist() for column in values), strict=True):
            found.setdefault(int(documents[part]), (part, text.format(*numbers)))

    ends = offsets.astype(np.int64) + sizes
    outside = np.flatnonzero((sizes <= 0) | (offsets < 0) | (ends > lengths))
    note(outside, "holds tokens {} to {} of a document of {}", offsets[outside], ends[outside], lengths[outside])
    order = np.argsort(documents, kind="stable")
    same = documents[order][1:] == documents[order][:-1]
    differ = order[1:][same & (lengths[order][1:] != lengths[order][:-1])]
    note(differ, "has a document of {} tokens, for which another part gives another length", lengths[differ])

    begins = np.flatnonzero(offsets > 0)
    stops = np.flatnonzero(ends < lengths)
    compare = _unmatched if overlap else _unbalanced
    wide = int(lengths.max(initial=0)) + overlap + 1
    names = documents.astype(np.int64) * wide  # plus a position in the document, this is one number for both
    lone_begins, lone_stops = compare(names[begins] + offsets[begins], names[stops] + ends[stops], overlap)
    begins, stops = begins[lone_begins], stops[lone_stops]
    note(begins, "continues at token {}, where no part of the document before it ends", offsets[begins])
    if not may_be_cut:
        note(stops, "ends at token {} of a document that is not continued", ends[stops])
    return [found[document] for document in sorted(found)]


def _unbalanced(begins: np.ndarray, stops: np.ndarray, _: int) -> tuple[np.ndarray, np.ndarray]:
    """Return ``(b,)`` and ``(s,)`` bool: starts where more parts start than end, and ends where more end than start."""
    places, events = np.unique(np.concatenate([begins, stops]), return_inverse=True)
    counts = [np.bincount(part, minlength=len(places)) for part in (events[: len(begins)], events[len(begins) :])]
    balance = (counts[0] - counts[1])[events]
    return balance[: len(begins)] > 0, balance[len(begins) :] < 0


def _unmatched(begins: np.ndarray, stops: np.ndarray, overlap: int) -> tuple[np.ndarray, np.ndarray]:
    """Return ``(b,)`` and ``(s,)`` bool: starts without an end there or ``overlap`` later, and ends for the reverse."""
    return (
        ~(np.isin(begins, stops) | np.isin(begins + overlap, stops)),
        ~(np.isin(stops, begins) | np.isin(stops - overlap, begins)),
    )
