"""In-context pretraining's chains of documents (arXiv 2310.10638) in plain Python, sets and dicts, as in its code.

``published_algorithm`` is the paper's algorithm 1: undirected, least degree to begin, the heaviest link first.
``published_code`` is what the sorting script of the paper's repository does instead. As published, that script stops
with an error where it merges short chains; here the merge does what its lines say.
"""

from __future__ import annotations

from collections import defaultdict

import numpy as np

LOOKED_AT = 10  # columns of a document's row, the first being the document itself
CHAIN = 21  # documents after which a chain ends


def published_code(neighbours: np.ndarray, looked_at: int = LOOKED_AT, chain: int = CHAIN) -> list[int]:
    """The order of all documents, from ``(n, k + 1)`` int32 neighbours, best first after the document itself.

    Of these, the first ``looked_at`` columns are considered; a new chain begins after ``chain`` steps.
    """
    chains: dict[int, list[int]] = defaultdict(list)
    chain_of: dict[int, int] = {}
    seen: set[int] = set()
    unseen = set(range(len(neighbours)))
    number = steps = 0
    current = unseen.pop()
    chains[number].append(current)
    chain_of[current] = number
    seen.add(current)
    while unseen:
        following = next((other for other in neighbours[current, 1:looked_at] if other not in seen), None)
        if following is None or steps >= chain:
            current = unseen.pop()
            number, steps = number + 1, 0
        else:
            current = following
            unseen.remove(current)
        chains[number].append(current)
        chain_of[current] = number
        steps += 1
        seen.add(current)
    _merge(neighbours, chains, chain_of, looked_at, chain)
    return [document for documents in chains.values() for document in documents]


def _merge(
    neighbours: np.ndarray, chains: dict[int, list[int]], chain_of: dict[int, int], looked_at: int, chain: int
) -> None:
    """Each document of a short chain goes before its first neighbour in another chain; without one it stays."""
    for number, documents in list(chains.items()):
        if len(documents) >= chain:
            continue
        left = []
        for document in documents:
            others = (other for other in neighbours[document, 1:looked_at] if chain_of[other] != number)
            beside = next(others, None)
            if beside is None:
                left.append(document)
                continue
            host = chains[chain_of[beside]]
            host.insert(host.index(beside), document)
            chain_of[document] = chain_of[beside]
        if left:
            chains[number] = left
        else:
            del chains[number]


def published_algorithm(neighbours: np.ndarray, similarities: np.ndarray) -> list[int]:
    """The order of all documents, from ``(n, k + 1)`` int32 neighbours, the document itself first, and similarities."""
    links: dict[int, dict[int, float]] = {document: {} for document in range(len(neighbours))}
    for document, (row, weights) in enumerate(zip(neighbours, similarities, strict=True)):
        for other, weight in zip(row.tolist()[1:], weights.tolist()[1:], strict=True):
            links[document][other] = weight
            links[other].setdefault(document, weight)
    unvisited = set(links)
    path = []
    for start in sorted(links, key=lambda document: len(links[document])):
        at: int | None = start if start in unvisited else None
        while at is not None:
            path.append(at)
            unvisited.remove(at)
            near = [other for other in links[at] if other in unvisited]
            at = max(near, key=links[at].__getitem__, default=None)
    return path
