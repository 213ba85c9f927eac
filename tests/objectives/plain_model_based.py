"""Model-based selection the plain way: lists, sorting, and one token after the other."""

import math
from collections.abc import Sequence

Chosen = tuple[int, int, bool, float, int]  # start, length, hidden, loss, rank


def aggregate(losses: Sequence[float], aggregation: str) -> float:
    return {"mean": sum(losses) / len(losses), "sum": sum(losses), "max": max(losses)}[aggregation]


def choose(
    spans: Sequence[tuple[int, int]],
    losses: Sequence[float],
    hidden: int,
    most_spans: float = math.inf,
    positions: float = math.inf,
) -> list[Chosen]:
    """Hide the hardest of one row's ``spans`` (start, length), whose ``losses`` are given.

    Every token of a span, hardest span first, is hidden as long as the row may hide another token and the decoder has
    a position for it; a span's first token also needs a sentinel and a position for that.
    """
    order = sorted(range(len(spans)), key=lambda i: (-losses[i], i))
    taken = dict.fromkeys(order, 0)
    tokens = used = sentinels = 0
    for i in order:
        for place in range(spans[i][1]):
            begins = place == 0
            if tokens + 1 > hidden or used + 1 + begins > positions or sentinels + begins > most_spans:
                break
            taken[i] += 1
            tokens, used, sentinels = tokens + 1, used + 1 + begins, sentinels + begins
        if taken[i] < spans[i][1]:
            break
    chosen = []
    for i, (start, length) in enumerate(spans):
        cut = taken[i]
        rank = order.index(i)
        if cut:
            chosen.append((start, cut, True, losses[i], rank))
        if cut < length:
            chosen.append((start + cut, length - cut, False, losses[i], rank))
    return chosen
