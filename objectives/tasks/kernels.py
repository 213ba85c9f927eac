"""Compiled kernels of tasks: dividing room among documents, and filling sources and targets.

The documents of a row, with a separator between them or after each, are its *stream*. A source is divided into blocks,
``head piece <eos>``: the head is begin, prefix, query and middle, and the pieces together are the stream. A task
without blocks has one piece.
"""

from __future__ import annotations

import numpy as np

from corpora.compiled import compiled

NONE, BOS, QUERY, SEPARATORS = 0, 1, 2, 3  # rules of global attention
NO_TOKEN = -1


@compiled
def divide(
    lengths: np.ndarray,
    offsets: np.ndarray,
    room: np.ndarray,
    separator: int,
    last: bool,
    shares: bool,
    handed_on: bool,
    tails: bool,
    kept: np.ndarray,
    streams: np.ndarray,
) -> None:
    """Choose the tokens of each document, and the part of each stream, that enter a source.

    ``room``: ``(n,)`` int64, positions for the stream of each row. ``separator``: its number of tokens; ``last``: it
    also follows the last document. ``shares``: each document has a share of the room, and with ``handed_on``, room that
    a short one leaves is divided among longer ones; without, the stream is cut as one text. ``tails``: a cut text keeps
    both ends.

    Output: ``kept``, ``(documents, 2)`` int64, first and last tokens of each document that enter the stream; and
    ``streams``, ``(4, n)`` int64: length of the stream, number of its first and of its last positions in the source,
    and number of document tokens among these.
    """
    for row in range(len(room)):
        first, stop = offsets[row], offsets[row + 1]
        count = stop - first
        separators = separator * (count if last else max(count - 1, 0))
        total = separators
        share, extra = 0, 0
        if shares:
            share, extra = _share(lengths, first, stop, room[row], separators, handed_on)
        for i in range(first, stop):
            size = lengths[i]
            if shares and size > share:
                size = share
                if extra > 0:
                    size, extra = size + 1, extra - 1
            kept[i, 1] = size // 2 if tails and size < lengths[i] else 0
            kept[i, 0] = size - kept[i, 1]
            total += size
        head, tail = total, 0
        if total > room[row]:
            tail = room[row] // 2 if tails and not shares else 0
            head = room[row] - tail
        streams[0, row], streams[1, row], streams[2, row] = total, head, tail
        streams[3, row] = _shown(kept, first, stop, separator, head, total - tail)


@compiled(inline="always")
def _share(lengths: np.ndarray, first: int, last: int, room: int, separators: int, handed_on: bool) -> tuple[int, int]:
    """Return the tokens that each of documents ``first`` to ``last - 1`` may keep, and how many may keep one more."""
    if handed_on:
        return _equal_shares(lengths[first:last], max(room - separators, 0))
    count = max(last - first, 1)
    # PRIMERA's tokenizer cuts each document at source_length // documents positions with <s> and </s>, which are then
    # dropped; the second term is smaller only for one document, or with long separators
    return max(min((room + 2) // count - 2, (room - separators) // count), 0), 0


@compiled(inline="always")
def _shown(kept: np.ndarray, first: int, last: int, separator: int, head: int, tail: int) -> int:
    """Count the tokens of documents ``first`` to ``last - 1`` before ``head`` and from ``tail`` on in their stream."""
    position, shown = 0, 0
    for i in range(first, last):
        end = position + kept[i, 0] + kept[i, 1]
        shown += max(min(end, head) - position, 0) + max(end - max(position, tail), 0)
        position = end + separator
    return shown


@compiled
def _equal_shares(lengths: np.ndarray, room: int) -> tuple[int, int]:
    """Return the size s and count e that fill the room: longer documents keep s tokens, the first e of them s + 1."""
    low, high = 0, 0
    for length in lengths:
        high = max(high, length)
    if _cut_to(lengths, high) <= room:
        return high, 0
    while low < high:  # the largest size that fits
        middle = (low + high + 1) // 2
        if _cut_to(lengths, middle) <= room:
            low = middle
        else:
            high = middle - 1
    return low, room - _cut_to(lengths, low)


@compiled
def _cut_to(lengths: np.ndarray, size: int) -> int:
    """Count the tokens of all documents, each cut to ``size``."""
    total = 0
    for length in lengths:
        total += min(length, size)
    return total


@compiled
def fill_sources(
    tokens: np.ndarray,
    documents: tuple,
    streams: np.ndarray,
    queries: tuple,
    texts: tuple,
    frame: tuple,
    pieces: np.ndarray,
    lengths: np.ndarray,
    source: np.ndarray,
    marks: np.ndarray,
) -> None:
    """Fill the sources ``(n, S)`` int32, and ``marks``, ``(n, S)`` bool, with the positions with global attention.

    ``documents``: first token and length of each document, ``kept`` of ``divide``, and offsets of the rows.
    ``queries``: tokens, and first token and shown length ``(n,)`` of each query. ``pieces``: ``(n,)`` int64, most
    positions of the stream in a block. ``lengths``: ``(n,)`` int32, length of each source. ``marks`` is all False
    before, and empty if the rule is ``NONE``.
    """
    pad, end, rule = frame
    most = 0
    for row in range(len(lengths)):
        most = max(most, streams[1, row] + streams[2, row])
    stream = np.empty(most, np.int32)
    separates = np.empty(len(stream), np.bool_)
    for row in range(len(lengths)):
        for place in range(most):
            separates[place] = False
        size = _fill_stream(row, tokens, documents, streams[:, row], texts[2], stream, separates)
        out, stop = source[row], lengths[row] - (end != NO_TOKEN)
        at = _fill_blocks(row, queries, texts, frame, stream[:size], separates, pieces[row], out, stop, marks)
        if end != NO_TOKEN:
            out[at] = end
            at += 1
        for place in range(at, len(out)):
            out[place] = pad
        if rule in (BOS, SEPARATORS) and at > 0:
            marks[row, 0] = True


@compiled
def _fill_blocks(
    row: int,
    queries: tuple,
    texts: tuple,
    frame: tuple,
    stream: np.ndarray,
    separates: np.ndarray,
    piece: int,
    out: np.ndarray,
    stop: int,
    marks: np.ndarray,
) -> int:
    """Write a row's blocks to ``out[:stop]``, the last without its end token, and return the position after them."""
    before, after, _ = texts
    _, end, rule = frame
    words, query_starts, query_sizes = queries
    at, done = 0, 0
    while True:
        start = at
        at = _put(before, 0, len(before), out, at, stop)
        at = _put(words, query_starts[row], query_sizes[row], out, at, stop)
        if rule == QUERY:
            for place in range(start, at):
                marks[row, place] = True
        if query_sizes[row] > 0:
            at = _put(after, 0, len(after), out, at, stop)
        start = at
        at = _put(stream, done, min(piece, len(stream) - done), out, at, stop)
        if rule == SEPARATORS:
            _put(separates, done, at - start, marks[row], start, at)
        done += at - start
        if at >= stop:
            return at
        if end != NO_TOKEN:
            out[at] = end
            at += 1


@compiled
def _fill_stream(
    row: int,
    tokens: np.ndarray,
    documents: tuple,
    limits: np.ndarray,
    separator: np.ndarray,
    stream: np.ndarray,
    separates: np.ndarray,
) -> int:
    """Write the shown positions of a row's stream, mark its separators, and return the number of positions."""
    starts, sizes, kept, offsets = documents
    position, at = 0, 0
    for i in range(offsets[row], offsets[row + 1]):
        head, tail = kept[i]
        end = starts[i] + sizes[i]
        position, at = _append(tokens, starts[i], head, False, limits, position, stream, separates, at)
        position, at = _append(tokens, end - tail, tail, False, limits, position, stream, separates, at)
        position, at = _append(separator, 0, len(separator), True, limits, position, stream, separates, at)
    return at


@compiled
def _append(
    text: np.ndarray,
    start: int,
    size: int,
    separates: bool,
    limits: np.ndarray,
    position: int,
    stream: np.ndarray,
    marks: np.ndarray,
    at: int,
) -> tuple[int, int]:
    """Append the part of ``text[start:start + size]``, at ``position`` of the whole stream, that enters the source.

    Returns position in the whole stream after the text, and in ``stream`` after the part.
    """
    total, head, tail = limits[0], limits[1], limits[2]
    stop = min(position + size, total)  # leaves out a separator after the last document that ``total`` does not count
    for low, high in ((position, min(stop, head)), (max(position, total - tail), stop)):
        end = _put(text, start + low - position, high - low, stream, at, len(stream))
        if separates:
            for place in range(at, end):
                marks[place] = True
        at = end
    return position + size, at


@compiled
def _put(text: np.ndarray, start: int, size: int, out: np.ndarray, at: int, stop: int) -> int:
    """Copy ``text[start:start + size]`` to ``out[at:stop]`` as far as it fits, and return the position after it."""
    count = max(min(size, stop - at), 0)
    # unsigned indices need no check for negative ones, so the compiler can vectorise the loop
    first, place = np.uint64(start), np.uint64(at)
    for i in range(np.uint64(count)):
        out[place + i] = text[first + i]
    return at + count


@compiled
def fill_targets(
    queries: tuple, targets: tuple, texts: tuple, frame: tuple, lengths: np.ndarray, target: np.ndarray
) -> None:
    """Fill the decoder's rows: before, query, after, target, end; the last two only if there is a target.

    ``queries``, ``targets``: as the queries of ``fill_sources``; length ``NO_TOKEN`` for no target. ``lengths``:
    ``(n,)`` int32, length of each row. ``target``: output, ``(n, T)`` int32.
    """
    before, after = texts
    pad, end = frame
    words, query_starts, query_sizes = queries
    answers, target_starts, target_sizes = targets
    for row in range(len(lengths)):
        out, stop = target[row], lengths[row]
        at = _put(before, 0, len(before), out, 0, stop)
        at = _put(words, query_starts[row], query_sizes[row], out, at, stop)
        if query_sizes[row] > 0:
            at = _put(after, 0, len(after), out, at, stop)
        if target_sizes[row] != NO_TOKEN:
            at = _put(answers, target_starts[row], target_sizes[row], out, at, stop)
            out[at] = end
            at += 1
        for place in range(at, len(out)):
            out[place] = pad
