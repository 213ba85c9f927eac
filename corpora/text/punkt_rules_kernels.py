"""Compiled rules of nupunkt about one candidate for the end of a sentence; ``punkt.py`` says why they are equal.

A docstring quotes the name of the function of nupunkt 0.8 that has the same steps. Positions are bytes of UTF-8.
"""

from __future__ import annotations

import numpy as np

from corpora.compiled import compiled
from corpora.text.utf8 import BORDER, CLOSER, DECIMAL, LOWER, MARK, SPACE, decode, previous, skip, skip_blanks

NO, YES, ASK = range(3)

_NEWLINE, _OPEN, _CLOSE, _DASH, _PERIOD = (ord(character) for character in "\n()-.")
_EXCLAMATION, _QUESTION, _SLASH, _PERCENT, _LINE = (ord(character) for character in "!?/%_")
_ENUMERATOR = 12  # characters before the period of "1." or "(iv)." within which nupunkt looks for the line's start


@compiled
def is_refused(data: np.ndarray, begin: int, stop: int, mark: int, after: int, kinds: np.ndarray) -> bool:
    """True if no sentence ends at a candidate, regardless of its words ("_slices_from_text")."""
    if data[mark] == _PERIOD and _is_enumerator(data, begin, mark, kinds):
        return True
    if after == stop:
        return False
    if data[after] == _EXCLAMATION or data[after] == _QUESTION:
        return True
    i = skip_blanks(data, after, stop)
    if after < i < stop and (data[i] == _EXCLAMATION or data[i] == _QUESTION):
        if i + 1 == stop or data[i + 1] == _EXCLAMATION or data[i + 1] == _QUESTION:
            return True
        if kinds[decode(data, i + 1)[0]] & SPACE:
            return True
    i = skip(data, after, stop, kinds, CLOSER)
    if i == after:
        return False
    i = skip_blanks(data, i, stop)
    return i < stop and kinds[decode(data, i)[0]] & LOWER != 0


@compiled
def _is_enumerator(data: np.ndarray, begin: int, mark: int, kinds: np.ndarray) -> bool:
    """True if a period ends a list's "1.", "(a)." or "IV." at the start of a line ("_is_line_start_enumerator")."""
    i, characters = mark, 0
    while characters < _ENUMERATOR and i > begin and data[i - 1] != _NEWLINE:
        i = previous(data, i)
        characters += 1
    if i > begin and (characters == _ENUMERATOR or data[i - 1] != _NEWLINE):
        return False
    i = skip_blanks(data, i, mark)
    if i < mark and data[i] == _OPEN:
        i += 1
    first, roman = i, True
    while i < mark and 97 <= data[i] | 0x20 <= 122:
        low = data[i] | 0x20
        roman &= low == 105 or low == 118 or low == 120 or low == 108 or low == 99
        i += 1
    if i > first:
        if i - first > (6 if roman else 1):
            return False
    else:
        digits = 0
        while i < mark and digits < 3:
            code, after = decode(data, i)
            if not kinds[code] & DECIMAL:
                break
            i = after
            digits += 1
        if digits == 0:
            return False
    if i < mark and data[i] == _CLOSE:
        i += 1
    return i == mark


@compiled
def realign(data: np.ndarray, after: int, end: int, kinds: np.ndarray) -> int:
    """Return the end of a sentence with its closing punctuation; its mark ends at ``after`` ("_realign_boundaries")."""
    begin = skip(data, after, end, kinds, SPACE)
    i = skip(data, begin, end, kinds, CLOSER)
    if i == begin:
        return after
    if i == end or kinds[decode(data, i)[0]] & SPACE:
        return i
    return i if i + 1 < end and data[i] == _DASH and data[i + 1] == _DASH else after


@compiled
def verdict(
    data: np.ndarray,
    context: int,
    mark: int,
    after: int,
    split: int,
    follower: int,
    stop: int,
    kinds: np.ndarray,
    rare: np.ndarray,
    seconds: np.ndarray,
) -> int:
    """Decide if a sentence ends with a candidate: ``YES``, ``NO``, or ``ASK`` nupunkt ("_strings_contain_sentbreak").

    ``follower``: start of the next word; ``split`` if it belongs to the same word.
    """
    if data[mark] != _PERIOD:
        return YES if after - mark == 1 else ASK
    if mark == context or (data[mark - 1] < 0x80 and kinds[data[mark - 1]] & (BORDER | MARK) == BORDER):
        return YES  # the character before the period is a token, so the period is one too
    letters, digits = _count_plain(data, context, mark)
    if letters and mark - context > 1:
        return ASK if _is_among(rare, _word_hash(data[context:mark])) else YES
    if letters + digits == 0 or follower in (split, stop):
        return ASK
    i = follower
    while i < stop and 97 <= data[i] | 0x20 <= 122:
        i += 1
    if i == follower:
        return ASK
    if data[follower] >= 97:
        return NO
    if _count_newlines(data[split:follower]) > 1:
        return YES
    if letters:
        return NO
    if i < stop and data[i] >= 0x80:
        return ASK
    return ASK if _is_among(seconds, _word_hash(data[follower:i])) else YES


@compiled
def _count_plain(data: np.ndarray, begin: int, end: int) -> tuple[int, int]:
    """Count the ASCII letters and digits of a word; 0 and 0 if nupunkt might divide it, or it has other characters."""
    letters = digits = 0
    for i in range(begin, end):
        byte = data[i]
        if 97 <= byte | 0x20 <= 122:
            letters += 1
        elif 48 <= byte <= 57:
            digits += 1
        elif byte == _DASH:
            if i == begin or data[i - 1] == _DASH:
                return 0, 0
        elif byte not in (_SLASH, _PERCENT, _LINE):
            return 0, 0
    return letters, digits if letters or digits == end - begin else 0


@compiled
def _count_newlines(data: np.ndarray) -> int:
    count = 0
    for byte in data:
        count += byte == _NEWLINE
    return count


@compiled
def _is_among(ascending: np.ndarray, value: int) -> bool:
    i = np.searchsorted(ascending, value)
    return bool(i < len(ascending) and ascending[i] == value)


@compiled
def _word_hash(word: np.ndarray) -> int:
    """Return the 32-bit FNV-1a hash of a word, regardless of case."""
    value = 0x811C9DC5
    for byte in word:
        value = ((value ^ (byte | 0x20)) * 0x01000193) & 0xFFFFFFFF
    return value


@compiled
def hash_words(data: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """Hash each word ``data[edges[i]:edges[i + 1]]``; ``(words,)`` int64."""
    hashes = np.empty(len(edges) - 1, np.int64)
    for i in range(len(hashes)):
        hashes[i] = _word_hash(data[edges[i] : edges[i + 1]])
    return hashes
