"""Packing of related documents into rows, each document cut to whole sentences within its share of the row.

Source: PRIMERA (Xiao et al. 2022, arXiv 2110.08499), whose code gives every document of a cluster the same budget; CDLM
(Caciularu et al. 2021, arXiv 2101.00406), which shuffles a cluster's documents.
"""

from __future__ import annotations

import numpy as np

from corpora.compiled import compiled
from corpora.packing.assemble import Cuts
from corpora.packing.options import Packing, RelatedRows
from corpora.storage.ragged import Ragged


def arrange(
    clusters: Ragged,
    lengths: np.ndarray,
    sentence_starts: Ragged,
    keys: np.ndarray,
    packing: Packing,
    options: RelatedRows,
) -> tuple[Cuts, np.ndarray]:
    """Pack n documents in c clusters into rows.

    A document keeps the whole sentences within its budget. Documents whose first sentence exceeds their budget are left
    out one by one, the longest first sentence first, and their budget goes to the others.

    ``clusters``: one row of document numbers (int64) per cluster, in the given order; each document at most once.
    ``lengths``: ``(n,)`` tokens. ``sentence_starts``: n rows of int32. ``keys``: ``(n, 2)`` uint64, which shuffle
    documents. Returns the rows, and the cluster of each, ``(rows,)`` int64. Documents in no part are left out.
    """
    clusters = clusters.compact()
    documents = clusters.values
    if options.order == "shuffle":
        cluster = np.repeat(np.arange(len(clusters)), clusters.lengths)
        documents = documents[np.lexsort((keys[documents, 1], keys[documents, 0], cluster))]
    most = options.largest(packing)
    rows = -(-clusters.lengths // most)  # (clusters,) rows of each
    cluster_of_row = np.repeat(np.arange(len(clusters)), rows)
    number = np.arange(len(cluster_of_row)) - np.repeat(np.cumsum(rows) - rows, rows)  # of the row in its cluster
    size, extra = np.divmod(clusters.lengths[cluster_of_row], rows[cluster_of_row])
    candidates = Ragged.from_lengths(documents, size + (number < extra))  # documents of each row
    sizes = _sizes(
        candidates.values,
        candidates.offsets,
        lengths,
        sentence_starts.values,
        sentence_starts.offsets,
        packing.capacity,
        packing.room_per_document,
        options.budget == "equal",
        options.min_documents,
    )
    kept = sizes > 0
    row_of_part = np.repeat(np.arange(len(candidates)), candidates.lengths)
    parts = np.bincount(row_of_part[kept], minlength=len(candidates))  # (rows,)
    row_offsets = np.concatenate([[0], np.cumsum(parts[parts > 0])]).astype(np.int64)
    zeros = np.zeros(int(kept.sum()), np.int64)
    return Cuts(row_offsets, candidates.values[kept], zeros, sizes[kept], zeros), cluster_of_row[parts > 0]


@compiled
def water_fill(wants: np.ndarray, room: int) -> np.ndarray:
    """Divide ``room`` equally among requests ``(n,)``, giving what small requests leave to larger ones.

    If the division leaves a remainder, the first of the larger requests get one more each.

    Returns ``(n,)`` int64 with the sum ``min(sum(wants), room)``.
    """
    shares = np.zeros(len(wants), np.int64)
    order = np.argsort(wants, kind="mergesort")
    left = room
    for i in range(len(order)):
        level = left // (len(order) - i)
        if wants[order[i]] > level:
            rest = left - level * (len(order) - i)
            for j in np.sort(order[i:]):
                shares[j] = level
                # all of these requests exceed the level, so each can take one more
                if rest > 0:
                    shares[j] += 1
                    rest -= 1
            break
        shares[order[i]] = wants[order[i]]
        left -= wants[order[i]]
    return shares


@compiled
def _sizes(
    documents: np.ndarray,  # (parts,) candidates
    row_offsets: np.ndarray,  # (rows + 1,)
    lengths: np.ndarray,  # (n,)
    starts: np.ndarray,  # (sentences,)
    start_offsets: np.ndarray,  # (n + 1,)
    capacity: int,
    room: int,
    equal: bool,
    least: int,
) -> np.ndarray:
    """Compute the number of tokens of each candidate, ``(parts,)`` int64; 0 if it is left out."""
    sizes = np.zeros(len(documents), np.int64)
    for row in range(len(row_offsets) - 1):
        chosen = np.arange(row_offsets[row], row_offsets[row + 1])  # places in documents
        while len(chosen) >= least and len(chosen) > 0:
            if equal:
                budgets = np.full(len(chosen), capacity // len(chosen) - room)
            else:
                budgets = water_fill(lengths[documents[chosen]], capacity - room * len(chosen))
            worst, longest = -1, 0
            for i in range(len(chosen)):
                document = documents[chosen[i]]
                first, last = start_offsets[document], start_offsets[document + 1]
                # end of the first sentence
                end = starts[first + 1] if last - first > 1 else lengths[document]
                if end > budgets[i] and end >= longest:
                    worst, longest = i, end
            if worst < 0:
                for i in range(len(chosen)):
                    sizes[chosen[i]] = _whole_sentences(
                        documents[chosen[i]], budgets[i], lengths, starts, start_offsets
                    )
                break
            chosen = np.delete(chosen, worst)
    return sizes


@compiled(inline="always")
def _whole_sentences(
    document: int, budget: int, lengths: np.ndarray, starts: np.ndarray, start_offsets: np.ndarray
) -> int:
    """Count the tokens of the leading sentences that fit into the budget."""
    if lengths[document] <= budget:
        return lengths[document]
    own = starts[start_offsets[document] : start_offsets[document + 1]]
    return own[np.searchsorted(own, budget, side="right") - 1]


def form_groups(
    neighbours: Ragged,
    similarities: np.ndarray,
    keys: np.ndarray,
    min_documents: int,
    max_documents: int,
    min_similarity: float = -np.inf,
) -> Ragged:
    """Form groups from neighbour lists: in key order, each free document is a seed and takes its nearest free ones.

    A seed with too few free neighbours takes none and remains free for later seeds. If ``min_documents`` is 1, the
    documents that remain free at the end become groups of one.

    ``neighbours``: n rows of document numbers, best first. ``similarities``: ``(edges,)``, of these. ``keys``:
    ``(n, 2)`` uint64. The numbers of documents of a group include the seed. Returns one row of int64 per group, seed
    first, then by falling similarity; groups in the order of their seeds' keys, groups of one last; each document at
    most once.
    """
    seeds = np.lexsort((keys[:, 1], keys[:, 0]))
    documents, sizes = _groups(
        neighbours.values,
        neighbours.offsets,
        np.asarray(similarities, np.float32),
        seeds,
        max(min_documents, 2),
        max_documents,
        min_similarity,
    )
    if min_documents == 1:
        alone = seeds[~np.isin(seeds, documents)]
        documents, sizes = np.append(documents, alone), np.append(sizes, np.ones_like(alone))
    return Ragged.from_lengths(documents, sizes)


@compiled
def _groups(
    neighbours: np.ndarray,
    offsets: np.ndarray,
    similarities: np.ndarray,
    seeds: np.ndarray,
    least: int,
    most: int,
    least_similarity: float,
) -> tuple[np.ndarray, np.ndarray]:
    free = np.ones(len(seeds), np.bool_)
    documents, sizes = np.empty(len(seeds), np.int64), np.empty(len(seeds), np.int64)
    used, count = 0, 0
    for seed in seeds:
        if not free[seed]:
            continue
        free[seed] = False  # not its own neighbour
        documents[used], size = seed, 1
        for edge in range(offsets[seed], offsets[seed + 1]):
            if size == most:
                break
            other = neighbours[edge]
            if free[other] and similarities[edge] >= least_similarity:
                free[other] = False
                documents[used + size] = other
                size += 1
        if size < least:
            free[documents[used : used + size]] = True
            continue
        sizes[count] = size
        used += size
        count += 1
    return documents[:used], sizes[:count]
