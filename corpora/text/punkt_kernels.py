"""Compiled scan for nupunkt's sentence boundaries; ``punkt.py`` says why they are equal.

A docstring quotes the name of the function of nupunkt 0.8 that has the same steps. Positions are bytes of UTF-8.
"""

from __future__ import annotations

import numpy as np

from corpora.compiled import compiled
from corpora.text.punkt_rules_kernels import ASK, NO, is_refused, realign, verdict
from corpora.text.utf8 import APOSTROPHE, BORDER, CLOSER, LETTER, SPACE, decode, previous, skip, skip_word, strip

_PERIOD, _EXCLAMATION, _QUESTION = (ord(character) for character in ".!?")
_MARK_BYTES = np.isin(np.arange(256), [_PERIOD, _EXCLAMATION, _QUESTION, 0xE2])  # 0xE2 begins "…"


@compiled
def scan(
    data: np.ndarray,  # (bytes,) uint8, the texts one after the other
    edges: np.ndarray,  # (texts + 1,) int64; text t is ``data[edges[t]:edges[t + 1]]``
    kinds: np.ndarray,  # (0x110000,) uint8, bits of each code point
    rare: np.ndarray,  # ascending ``hash_words`` of the words after which a period may not end a sentence
    seconds: np.ndarray,  # the same for words that continue a number with a period; only their first letters
    stretch_limit: int,
    crowd: int,
    spacing: int,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Find the sentence starts of texts.

    Returns starts: ``(sentences,)`` int64, bytes from the start of the text, ascending in each text. lengths:
    ``(texts,)`` int64, starts of each text. doubts: ``(doubts, 4)`` int64: index of a start about which nupunkt has to
    decide, and its context: begin, the position between its two parts, and end. beyond: ``(texts,)`` bool: True if a
    word or a crowd may be beyond the limits. Such a text has no doubts, and its starts are void.
    """
    most = _count_marks(data)
    starts = np.empty(most + len(edges) - 1, np.int64)
    doubts = np.empty((most, 4), np.int64)
    found = np.empty((most, 3), np.int64)
    recent = np.empty(crowd, np.int64)
    lengths = np.zeros(len(edges) - 1, np.int64)
    beyond = np.zeros(len(edges) - 1, np.bool_)
    count = asked = 0
    for text in range(len(edges) - 1):
        begin, stop = edges[text], edges[text + 1]
        if begin == stop:
            continue
        first, first_asked = count, asked
        starts[count] = 0
        count += 1
        end = strip(data, begin, stop, kinds)
        candidates, beyond[text] = _candidates(data, begin, stop, kinds, found, recent, stretch_limit, spacing * crowd)
        for context, mark, after in found[:candidates]:
            if is_refused(data, begin, stop, mark, after, kinds):
                continue
            start = realign(data, after, end, kinds)
            if start >= end:  # no sentence follows
                continue
            split = skip(data, after, stop, kinds, CLOSER)
            follower = skip(data, split, stop, kinds, SPACE)
            decision = verdict(data, context, mark, after, split, follower, stop, kinds, rare, seconds)
            if decision == NO:
                continue
            if decision == ASK:
                doubts[asked, 0] = count
                doubts[asked, 1] = context
                doubts[asked, 2] = split
                doubts[asked, 3] = skip_word(data, follower, stop, kinds)
                asked += 1
            starts[count] = start - begin
            count += 1
        lengths[text] = count - first
        if beyond[text]:
            asked = first_asked
    return starts[:count].copy(), lengths, doubts[:asked].copy(), beyond


@compiled
def _count_marks(data: np.ndarray) -> int:
    """Return an upper bound of the number of marks."""
    count = 0
    for byte in data:
        count += (byte == _PERIOD) | (byte == _EXCLAMATION) | (byte == _QUESTION) | (byte == 0xA6)
    return count


@compiled
def _candidates(
    data: np.ndarray,
    begin: int,
    stop: int,
    kinds: np.ndarray,
    found: np.ndarray,
    recent: np.ndarray,
    stretch_limit: int,
    crowd_limit: int,
) -> tuple[int, bool]:
    """Find the marks that may end a sentence ("_match_potential_end_contexts").

    ``found``: ``(marks, 3)``; receives the start of the context, the mark and the position after it. ``stretch_limit``,
    ``crowd_limit``: bytes times marks of a stretch, and characters of a crowd. Returns number of candidates, and True
    if the text may be beyond the limits.
    """
    beyond, ascii_only = False, True
    for byte in data[begin:stop]:
        ascii_only &= byte < 0x80
    if not ascii_only:
        crowd_limit *= 4  # bytes of a character
    count = marks = word_marks = 0
    seen = word = begin  # the end of the last mark, the start of its word
    space = -1  # the last white space character
    context = last = begin  # of the last candidate
    pending = False  # the last candidate is not in found yet: another candidate of its word replaces it
    after = begin
    while True:
        i, after = _next_mark(data, after, stop)
        if i == stop:
            break
        if marks >= len(recent) and i - recent[marks % len(recent)] <= crowd_limit:
            beyond = True
        recent[marks % len(recent)] = i
        marks += 1
        start = _word_start(data, seen, i, kinds)
        if start > seen:
            if word_marks and (skip_word(data, seen, stop, kinds) - word) * word_marks > stretch_limit:
                beyond = True
            word, space, word_marks = start, previous(data, start), 0
        seen = after
        word_marks += 1
        if not _is_candidate(data, i, after, stop, kinds):
            continue
        start = word if space > last else context
        if word == i and i > begin:
            start = min(start, _ellipsis_start(data, begin, last, context, i, kinds))
        if pending and last <= start:
            count += 1
        found[count, 0], found[count, 1], found[count, 2] = start, i, after
        pending, context, last = True, start, i
    if word_marks and (skip_word(data, seen, stop, kinds) - word) * word_marks > stretch_limit:
        beyond = True
    return count + pending, beyond


@compiled
def _next_mark(data: np.ndarray, i: int, stop: int) -> tuple[int, int]:
    """Return the positions of the next mark and after it; ``stop`` twice if there is none."""
    while i < stop:
        if _MARK_BYTES[data[i]]:
            if data[i] != 0xE2:
                return i, i + 1
            if data[i + 1] == 0x80 and data[i + 2] == 0xA6:
                return i, i + 3
        i += 1
    return stop, stop


@compiled
def _word_start(data: np.ndarray, begin: int, i: int, kinds: np.ndarray) -> int:
    """Return the end of the last white space of ``data[begin:i]``; ``begin`` if there is none."""
    while i > begin:
        before = previous(data, i)
        if kinds[decode(data, before)[0]] & SPACE:
            break
        i = before
    return i


@compiled
def _is_candidate(data: np.ndarray, mark: int, after: int, stop: int, kinds: np.ndarray) -> bool:
    """True if a sentence may end with the mark that ends at ``after`` ("_candidate_pattern")."""
    if after == stop:
        return False
    follower, beyond = decode(data, after)
    kind = kinds[follower]
    if kind & APOSTROPHE:
        return beyond == stop or not kinds[decode(data, beyond)[0]] & LETTER
    if not kind & (BORDER | SPACE):
        return False
    if data[mark] == _PERIOD and kind & SPACE:  # of ". . .", only the last period is a candidate
        further = skip(data, after, stop, kinds, SPACE)
        return further == stop or data[further] != _PERIOD
    return True


@compiled
def _ellipsis_start(data: np.ndarray, begin: int, last: int, context: int, mark: int, kinds: np.ndarray) -> int:
    """Return the start of the word before the spaced periods before a mark ("_match_potential_end_contexts")."""
    run = mark
    while True:
        i = strip(data, begin, run, kinds)
        if i in (begin, run) or data[i - 1] != _PERIOD:
            break
        run = i - 1
    if run == mark:
        return mark
    i = strip(data, last, run, kinds) if run > last else last
    while i > last:
        before = previous(data, i)
        if before > last and kinds[decode(data, before)[0]] & SPACE:
            return i
        i = before
    return context
