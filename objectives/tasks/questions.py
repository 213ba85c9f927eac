"""Several questions about the same documents as one example: grouping, joining, and dividing a generated text."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from corpora.schemas.pairs import PairBatch
from corpora.storage.ragged import Ragged
from objectives.tasks.protocol import NO_TARGET


def group_questions(documents: Ragged, most: int) -> np.ndarray:
    """Group n pairs that follow each other and have the same ``documents`` into examples of at most ``most`` questions.

    Returns ``(m + 1,)`` int64: pairs ``offsets[i]`` to ``offsets[i + 1] - 1`` are example i.
    """
    if most == 1:
        return np.arange(len(documents) + 1)
    starts: list[int] = []
    names = [documents[pair].tobytes() for pair in range(len(documents))]
    for pair, name in enumerate(names):
        if not pair or name != names[pair - 1] or pair - starts[-1] == most:
            starts.append(pair)
    return np.array([*starts, len(names)], np.int64)


def split_groups(rows: np.ndarray, offsets: np.ndarray, size: int) -> list[np.ndarray]:
    """Split ``(n,)`` rows of pairs into parts of about ``size``, without dividing an example of ``group_questions``."""
    edges = offsets[np.searchsorted(offsets, np.arange(size, len(rows), size))]
    return [part for part in np.split(rows, np.unique(edges)) if len(part)]


def join_questions(batch: PairBatch, chosen: np.ndarray, separator: int) -> tuple[PairBatch, np.ndarray]:
    """Join the queries, and the chosen targets, of each example to one, with the id ``separator`` between them.

    ``chosen``: ``(n,)`` int64, index of the target within its pair. An example has the id of its first pair, and no
    target if one of its pairs has none.
    """
    offsets = batch.example_offsets
    assert offsets is not None
    first = offsets[:-1]
    known = np.logical_and.reduceat(chosen >= 0, first)
    rows = batch.target_offsets[:-1] + np.maximum(chosen, 0)
    targets = Ragged(batch.targets.values[:0], np.zeros(len(first) + 1, np.int64))
    if known.all():
        targets = _join(batch.targets.take(rows), offsets, separator)
    joined = replace(
        batch,
        pair_ids=[batch.pair_ids[pair] for pair in first.tolist()],
        pair_documents=batch.pair_documents.take(first),
        queries=_join(batch.queries, offsets, separator),
        targets=targets,
        target_offsets=np.arange(len(first) + 1),
        example_offsets=None,
    )
    return joined, np.full(len(first), 0 if known.all() else NO_TARGET)


def _join(rows: Ragged, offsets: np.ndarray, separator: int) -> Ragged:
    rows = rows.compact()
    separated = np.insert(rows.values.astype(np.int32), rows.offsets[1:], separator)
    lengths = np.add.reduceat(rows.lengths + 1, offsets[:-1])
    return Ragged.from_lengths(np.delete(separated, np.cumsum(lengths) - 1), lengths - 1)


def divide_answers(tokens: np.ndarray, count: int, separator: int) -> list[np.ndarray]:
    """Divide the generated ids ``(t,)`` of an example into the answers of its ``count`` questions.

    Answers that are missing are empty, and those beyond ``count`` are left out.
    """
    parts = np.split(tokens, np.flatnonzero(tokens == separator))
    answers = [part[number > 0 :] for number, part in enumerate(parts)][:count]
    return answers + [tokens[:0]] * (count - len(answers))
