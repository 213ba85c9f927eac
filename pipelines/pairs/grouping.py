"""Recognising records of the same pair, and drawing splits, as functions of arrays."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from corpora.keyed import id_keys, make_key
from corpora.schemas.pairs import SPLITS
from corpora.storage.ragged import Ragged


def first_of_equal(names: np.ndarray, contents: np.ndarray) -> np.ndarray:
    """Find for each record the first record of the same pair, in the order of the records: ``(n,)`` int64.

    ``names``, ``(n, 2)`` uint64, are hashes of pair ids; ``contents``, ``(n,)`` uint64, hashes of the fields that all
    records of a pair must have in common. A record whose contents differ from those of the first gets -1.
    """
    order = np.lexsort((names[:, 1], names[:, 0]))  # stable: equal names stay in the order of the records
    sorted_names = names[order]
    begins = np.ones(len(names), bool)
    begins[1:] = (sorted_names[1:] != sorted_names[:-1]).any(axis=1)
    first = np.empty(len(names), np.int64)
    first[order] = order[begins][np.cumsum(begins) - 1]
    return np.where(contents == contents[first], first, -1)


def document_groups(documents: Ragged) -> tuple[np.ndarray, np.ndarray]:
    """Divide the documents of n pairs, at least one, into groups, so that documents of one pair are in the same group.

    ``documents`` has n rows of int64, rows of the documents artefact; at least one each. The result is ``(m,)`` int64,
    the distinct documents, ascending, and ``(m,)`` int64, the group of each: the index of its least document.
    """
    documents = documents.compact()
    distinct, numbers = np.unique(documents.values, return_inverse=True)
    groups = np.arange(len(distinct))  # (m,) least document known so far to be in each document's group
    while True:
        least = np.minimum.reduceat(groups[numbers], documents.offsets[:-1])  # (n,) over the documents of each pair
        joined = groups.copy()
        for members in (numbers, groups[numbers]):  # the documents, and those that represent their groups so far
            np.minimum.at(joined, members, np.repeat(least, documents.lengths))
        joined = joined[joined]
        if (joined == groups).all():
            return distinct, groups
        groups = joined


def draw_splits(documents: Ragged, document_ids: Sequence[str], seed: int, validation: float, test: float) -> pa.Array:
    """Draw the split of each of n pairs from ``SPLITS``, so that no document is in two splits; ``(n,)`` strings.

    All pairs of a group that share documents have the same split, drawn by the least of the ids of its documents.
    ``documents`` is as for ``document_groups``; ``document_ids`` has the ids of all its values, in their order;
    ``validation`` and ``test`` are shares of documents.
    """
    documents = documents.compact()
    distinct, groups = document_groups(documents)
    _, places = np.unique(documents.values, return_index=True)
    names = np.array([document_ids[place] for place in places.tolist()], object)
    order = np.argsort(names, kind="stable")
    _, least = np.unique(groups[order], return_index=True)  # (groups,) place of each group's least id in the order
    draws = id_keys(make_key(seed, "split"), names[order][least].tolist())[:, 0] / 2.0**64  # (groups,)
    drawn = np.where(
        draws < test, SPLITS.index("test"), np.where(draws < test + validation, SPLITS.index("validation"), 0)
    )
    _, of_group = np.unique(groups, return_inverse=True)
    of_document = drawn[of_group]  # (m,)
    first = documents.values[documents.offsets[:-1]]
    return pa.array(np.array(SPLITS, object)[of_document[np.searchsorted(distinct, first)]], pa.string())


def in_several_splits(documents: Ragged, splits: np.ndarray) -> tuple[int, int]:
    """Count the distinct documents of n pairs, and those among them that are in several of the ``(n,)`` splits."""
    documents = documents.compact()
    numbers = np.unique(splits, return_inverse=True)[1]
    places = np.column_stack([documents.values, np.repeat(numbers, documents.lengths)])
    distinct, counts = np.unique(np.unique(places, axis=0)[:, 0], return_counts=True)
    return len(distinct), int((counts > 1).sum())
