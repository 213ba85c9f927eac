"""Given questions among other documents: the shape of RULER's ``qa_1`` and ``qa_2``."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, partial

import numpy as np

from corpora.schemas.pairs import PairLengths, PairSet
from corpora.storage.ragged import Ragged
from objectives.probes.example import WHOLE, Example, Request
from objectives.probes.materials import Draws, Materials, Text, numbered


@lru_cache(maxsize=2)
def _lengths(pairs: PairSet) -> PairLengths:
    return PairLengths.of(pairs)


def fitting_questions(pairs: PairSet, length: int, several: bool) -> np.ndarray:
    """Rows of the questions about one document, or about ``several``, that leave a quarter of ``length`` free."""
    lengths, rows = _lengths(pairs), np.arange(len(pairs))
    documents = lengths.documents_of(rows)
    ends = np.append(0, np.cumsum(documents.values))[documents.offsets]
    sizes = np.diff(ends) + lengths.queries
    return rows[(sizes <= length * 3 // 4) & ((documents.lengths > 1) == several) & (pairs.target_counts > 0)]


def answer_question(request: Request, several: bool) -> Example:
    """A given question about one document, or about ``several``, among other documents, all numbered."""
    pairs, draws = request.materials.questions, request.draws("facts")
    assert pairs is not None  # checked before work starts
    rows = fitting_questions(pairs, request.length, several)
    # a permutation of the questions, so that none comes twice before all came once
    turn, number = divmod(request.number, len(rows))
    order = Draws(request.key, f"questions {several} {request.length} {turn}").distinct(len(rows), len(rows))
    (pair,) = pairs.table([int(rows[order[number]])]).to_pylist()
    needed = pair["document_rows"]
    places = draws.below(WHOLE, len(needed)).tolist() if several else [request.place]
    return Example(
        query=f"{request.materials.tokenizer.decode(pair['query'])} Answer:".strip(),
        answers=pair["references"],
        background=partial(_documents_around, request, needed, places),
        places=places,
        needed=range(len(needed)),
        hops=len(needed),
        cut=False,
        alternatives=True,
        split=pair["split"],
    )


def _documents_around(
    request: Request, needed: Sequence[int], places: Sequence[int], materials: Materials, room: int
) -> Text:
    """Numbered documents of ``room`` tokens, at most a heading less: the needed ones at their places, among drawn ones.

    The last drawn document is cut.
    """
    total = len(materials.documents)
    drawn = request.draws("text").distinct(total, min(total, room)).tolist()
    units = [materials.document(row).tokens for row in needed]
    ends = 2 * len(materials.line_end)
    size = sum(len(unit) + ends for unit in units) + int(headings(materials, len(units)).values.size)
    for row in drawn:
        if size >= room:
            break
        if row not in needed:
            units.append(materials.document(row).tokens)
            size += len(units[-1]) + ends + len(headings(materials, len(units))[len(units) - 1])
    units[-1] = units[-1][: max(len(units[-1]) - max(size - room, 0), 0)]
    around = [unit for unit in units[len(needed) :] if len(unit)]
    edges = np.cumsum([0, *map(len, around)])
    wanted = np.array(places) * edges[-1] // WHOLE
    at = np.abs(edges[:, None] - wanted).argmin(axis=0)  # before which of the others each needed one stands
    order = np.argsort(np.concatenate([at, np.arange(len(around)) + 0.5]), kind="stable").tolist()
    units = [*units[: len(needed)], *around]
    names = headings(materials, len(units))
    parts = [
        np.concatenate([names[place], materials.line_end, units[number], materials.line_end]).astype(np.int32)
        for place, number in enumerate(order)
    ]
    return Text.of(Ragged.from_rows(parts, np.int32))


def headings(materials: Materials, count: int) -> Ragged:
    """Encode ``Document 1:`` and so on."""
    return numbered(materials, "Document {}:", count).take(np.arange(count))
