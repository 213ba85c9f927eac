"""Greedy growth of groups of neighbouring documents from seeds; each group fills one sequence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from corpora.compiled import compiled
from corpora.storage.ragged import Ragged, read_only


class Limits(NamedTuple):
    """Limits on the growth of groups."""

    capacity: int  # positions of a sequence
    room_per_document: int  # positions that each document takes in addition to its tokens
    least: int  # positions of a group; smaller groups are dissolved
    max_uses: int  # groups that a document may be in
    min_similarity: float  # of neighbours that are taken
    chain: bool  # use the document added last as the query, in place of the seed


@dataclass(frozen=True)
class Groups:
    """The result of ``document_groups``.

    ``refused`` has repetitions: a group, perhaps a dissolved one, contained the first document and therefore did not
    take the second, which is in the same family.
    """

    documents: Ragged  # one row per group, int64, in the order of addition; the seed is first
    similarities: np.ndarray  # float32, of each of these to the query whose neighbour it was; nan for seeds
    refused: np.ndarray  # (m, 2) int64


def document_groups(
    neighbours: Ragged,
    similarities: np.ndarray,
    families: np.ndarray,
    sizes: np.ndarray,
    seeds: np.ndarray,
    candidates: np.ndarray,
    limits: Limits,
) -> Groups:
    """Grow a group from every seed that is in no earlier group.

    A group repeatedly takes the first neighbour of its query that fits, has uses left and is in no family of the
    group's documents. The query is the seed; in a chain, it is the last added document whose list is not exhausted.
    Shapes and dtypes are those of ``_Nodes``.
    """
    (similarities,) = read_only(similarities)
    nodes = _Nodes(neighbours.values, neighbours.offsets, similarities, families, sizes, candidates)
    documents, chosen, ends, refused = _grow(nodes, seeds, limits)
    return Groups(Ragged(documents, ends), chosen, refused)


class _Nodes(NamedTuple):
    """The n documents and their neighbours."""

    values: np.ndarray  # (edges,) int32, neighbours in the order of trial
    offsets: np.ndarray  # (n + 1,)
    similarities: np.ndarray  # (edges,) float32, descending in every row
    families: np.ndarray  # (n,) int64 below n; documents of one family never share a group
    sizes: np.ndarray  # (n,) int64, tokens of a document in its group; each fits into a sequence by itself
    candidates: np.ndarray  # (n,) bool, documents that may be added to a seed


@compiled
def _grow(nodes: _Nodes, seeds: np.ndarray, limits: Limits) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    families, sizes, n = nodes.families, nodes.sizes, len(nodes.sizes)
    capacity, reserved = limits.capacity, limits.room_per_document
    uses = np.zeros(n, np.int32)
    refused, refusals = np.empty((16, 2), np.int64), 0
    # per document, the seed of its last group; per family, the seed of its last group and its document there
    inside, taken, member = np.full(n, -1, np.int64), np.full(n, -1, np.int64), np.empty(n, np.int64)
    # the current group: its documents, and its queries with the next edge of each
    most = min(n, capacity // (1 + reserved)) + 1
    group, steps = np.empty(most, np.int64), np.empty(most, np.float32)
    queries, edges = np.empty(most, np.int64), np.empty(most, np.int64)
    # all groups
    documents, chosen = np.empty(len(seeds), np.int64), np.empty(len(seeds), np.float32)
    ends = np.zeros(len(seeds) + 1, np.int64)
    groups = 0
    for seed in seeds:
        if uses[seed]:
            continue
        count, free, top, added, step = 0, capacity, -1, seed, np.float32(np.nan)
        while added >= 0:
            group[count], steps[count], inside[added] = added, step, seed
            count += 1
            free -= sizes[added] + reserved
            taken[families[added]], member[families[added]] = seed, added
            if limits.chain or count == 1:
                top += 1
                queries[top], edges[top] = added, nodes.offsets[added]
            added = -1
            while added < 0 and top >= 0 and free > reserved:
                edge, top = _next_edge(nodes, limits, seed, free, uses, inside, queries, edges, top)
                if edge < 0:
                    break
                other = np.int64(nodes.values[edge])
                if taken[families[other]] != seed:
                    added, step = other, nodes.similarities[edge]
                    continue
                refused = _with_room(refused, refusals + 1)
                refused[refusals, 0], refused[refusals, 1] = member[families[other]], other
                refusals += 1
        if capacity - free < limits.least:
            continue
        end = ends[groups] + count
        documents, chosen = _with_room(documents, end), _with_room(chosen, end)
        documents[ends[groups] : end], chosen[ends[groups] : end] = group[:count], steps[:count]
        for document in group[:count]:
            uses[document] += 1
        groups += 1
        ends[groups] = end
    total = ends[groups]
    return documents[:total].copy(), chosen[:total].copy(), ends[: groups + 1].copy(), refused[:refusals].copy()


@compiled
def _next_edge(
    nodes: _Nodes,
    limits: Limits,
    seed: int,
    free: int,
    uses: np.ndarray,
    inside: np.ndarray,
    queries: np.ndarray,
    edges: np.ndarray,
    top: int,
) -> tuple[int, int]:
    """Find the next edge to a document that fits, and the index of its query; both are -1 if there is none."""
    while top >= 0:
        edge = edges[top]
        if edge == nodes.offsets[queries[top] + 1] or nodes.similarities[edge] < limits.min_similarity:
            top -= 1  # the list is exhausted: documents that did not fit before will not fit later
            continue
        edges[top] += 1
        other = np.int64(nodes.values[edge])
        if (
            nodes.candidates[other]
            and inside[other] != seed
            and uses[other] < limits.max_uses
            and nodes.sizes[other] + limits.room_per_document <= free
        ):
            return edge, top
    return -1, top


@compiled
def _with_room(array: np.ndarray, count: int) -> np.ndarray:
    """Double the array until it has room for ``count`` entries."""
    while count > len(array):
        array = np.concatenate((array, np.empty_like(array)))
    return array
