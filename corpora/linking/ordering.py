"""Orders of documents: by key, by position in a neighbour list, and shuffled."""

from __future__ import annotations

import numpy as np

from corpora.compiled import compiled
from corpora.keyed import philox_blocks


def ranks(order: np.ndarray) -> np.ndarray:
    """Return the position of each document in the order, ``(n,)`` int32."""
    places = np.empty(len(order), np.int32)
    places[order] = np.arange(len(order))
    return places


@compiled
def places_in_first_list(
    lists: np.ndarray, offsets: np.ndarray, documents: np.ndarray, row_offsets: np.ndarray
) -> np.ndarray:
    """Return the position of each document of a row in the neighbour list of the row's first, ``(parts,)`` int64.

    The first document itself has position -1; documents that are not in its list come last.
    """
    places = np.empty(len(documents), np.int64)
    owner, position = np.full(len(offsets) - 1, -1, np.int64), np.empty(len(offsets) - 1, np.int64)
    for row in range(len(row_offsets) - 1):
        first = documents[row_offsets[row]]
        for edge in range(offsets[first], offsets[first + 1]):
            owner[lists[edge]], position[lists[edge]] = row, edge - offsets[first]
        owner[first], position[first] = row, -1
        for part in range(row_offsets[row], row_offsets[row + 1]):
            document = documents[part]
            places[part] = position[document] if owner[document] == row else len(lists)
    return places


@compiled
def shuffle_draws(keys: np.ndarray, row_offsets: np.ndarray) -> np.ndarray:
    """Draw random numbers for the parts of each row, ``(parts,)`` uint64, with the key of the row's first part."""
    draws = np.empty(len(keys), np.uint64)
    for row in range(len(row_offsets) - 1):
        first, end = row_offsets[row], row_offsets[row + 1]
        blocks = np.empty(((end - first + 3) // 4, 4), np.uint64)
        philox_blocks(keys[first, 0], keys[first, 1], np.uint64(1), blocks)
        draws[first:end] = blocks.reshape(-1)[: end - first]
    return draws
