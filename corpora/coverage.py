"""Whether the parts of documents that lie in a corpus add up to the documents."""

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
    """What is wrong with p parts; arguments are ``(p,)``.

    A document may lie in a corpus several times, in parts that differ from time to time. It is whole when at every
    place inside of it as many parts begin as end there.

    Args:
        documents: number of each part's document.
        offsets, sizes: the part in its document.
        lengths: tokens of the whole document.
        overlap: a part that is not a document's first begins that many tokens before the end of the part before it.
        may_be_cut: the end of a document may be missing.

    Returns:
        One (part, what is wrong) for each document with a fault, in order of documents.
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
    parts = np.concatenate([begins, stops])  # (events,)
    places = np.concatenate([offsets[begins].astype(np.int64) + overlap, ends[stops]])
    order = np.lexsort((places, documents[parts]))
    parts, places = parts[order], places[order]
    signs = np.where(order < len(begins), 1, -1)
    new = np.ones(len(parts), bool)  # the first event at each (document, place)
    new[1:] = (documents[parts][1:] != documents[parts][:-1]) | (places[1:] != places[:-1])
    first = np.flatnonzero(new)
    balance = np.add.reduceat(signs, first) if len(first) else np.empty(0, int)
    for events, text in (
        (first[balance > 0], "continues at token {}, where no part of the document before it ends"),
        (first[(balance < 0) & (not may_be_cut)], "ends at token {} of a document that goes on nowhere"),
    ):
        note(parts[events], text, places[events])
    return [found[document] for document in sorted(found)]
