"""Check that the parts of documents in a corpus add up to whole documents."""

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
    """Find documents whose p parts do not add up; arguments are ``(p,)``.

    A document may lie in a corpus several times, in parts that differ from time to time. It is whole when at every
    place inside of it as many parts begin as end there.

    Args:
        documents: number of each part's document.
        offsets, sizes: the part in its document.
        lengths: tokens of the whole document.
        overlap: parts may also begin that many tokens before the end of the part before them; a place is then sound
            if a part begins there for each that ends, and the other way round.
        may_be_cut: the end of a document may be missing.

    Returns:
        One (part, fault) for each document with a fault, in order of documents.
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
    note(differ, "has a document of {} tokens, of which another part says otherwise", lengths[differ])

    begins = np.flatnonzero(offsets > 0)
    stops = np.flatnonzero(ends < lengths)
    compare = _unmatched if overlap else _unbalanced
    wide = int(lengths.max(initial=0)) + overlap + 1
    names = documents.astype(np.int64) * wide  # + a place in the document: both as one number
    lone_begins, lone_stops = compare(names[begins] + offsets[begins], names[stops] + ends[stops], overlap)
    begins, stops = begins[lone_begins], stops[lone_stops]
    note(begins, "continues at token {}, where no part of the document before it ends", offsets[begins])
    if not may_be_cut:
        note(stops, "ends at token {} of a document that goes on nowhere", ends[stops])
    return [found[document] for document in sorted(found)]


def _unbalanced(begins: np.ndarray, stops: np.ndarray, _: int) -> tuple[np.ndarray, np.ndarray]:
    """``(b,)`` and ``(s,)`` bool: places where more parts begin than end, and where more end than begin."""
    places, events = np.unique(np.concatenate([begins, stops]), return_inverse=True)
    counts = [np.bincount(part, minlength=len(places)) for part in (events[: len(begins)], events[len(begins) :])]
    balance = (counts[0] - counts[1])[events]
    return balance[: len(begins)] > 0, balance[len(begins) :] < 0


def _unmatched(begins: np.ndarray, stops: np.ndarray, overlap: int) -> tuple[np.ndarray, np.ndarray]:
    """``(b,)`` and ``(s,)`` bool: beginnings without an end there or ``overlap`` later, and the other way round."""
    return (
        ~(np.isin(begins, stops) | np.isin(begins + overlap, stops)),
        ~(np.isin(stops, begins) | np.isin(stops - overlap, begins)),
    )
