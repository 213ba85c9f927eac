"""Splitting of texts into numbered words, without a Python object per word.

Words are defined as in Google's ``rouge_score``, or by Unicode for scripts in which ``rouge_score`` finds no words. A
number identifies a word within its text only, because ``objectives.rouge.sentence_scores`` compares sentences of one
text.
"""

from __future__ import annotations

import functools
import re
import sys
import unicodedata
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from corpora.compiled import compiled
from corpora.storage.ragged import Ragged
from corpora.text.utf8 import byte_offsets
from objectives.rouge.numbering import mix_letter, number_words, renumber

WORDS = ("rouge", "unicode")
_8, _56 = np.uint64(8), np.uint64(56)


@dataclass(frozen=True, slots=True)
class Words:
    """The words of n texts, numbered within each text in the order of their first occurrence.

    Attributes:
        ids: one int32 row per sentence, over all texts, without gaps.
        sentences: ``(n + 1,)`` int64: the sentences of text i are rows ``sentences[i]:sentences[i + 1]`` of ``ids``.
        distinct: ``(n,)`` int64, number of distinct words in each text.
    """

    ids: Ragged
    sentences: np.ndarray
    distinct: np.ndarray

    @property
    def edges(self) -> np.ndarray:
        """Limits of the texts, ``(n + 1,)`` int64: the words of text i are ``ids.values[edges[i]:edges[i + 1]]``."""
        return self.ids.offsets[self.sentences]


def split_words(
    texts: Sequence[str],
    sentence_starts: Ragged,
    *,
    stopwords: Collection[str] = (),
    words: str = "rouge",
    stem: bool = False,
) -> Words:
    """Split n texts into words and number them, sentence by sentence; a word ends at the end of its sentence.

    ``sentence_starts``: n rows, first character of each sentence, ascending. ``stopwords`` are split like the texts and
    left out, before any stemming. ``stem``: replace words of more than three characters by their Porter stem, as
    ``rouge_score`` with ``use_stemmer=True``; for English.

    ``words``, all in lower case: ``rouge``, runs of ASCII letters and digits, as in ``rouge_score``'s tokenizer; or
    ``unicode``, runs of letters, marks and numbers of any script, where each letter of a script without spaces is a
    word. On ASCII text both are the same.
    """
    by_bytes, sentences = words == "rouge", sentence_starts.compact().offsets
    letters, first, last = _letters(texts, sentence_starts, stopwords, by_bytes)
    if by_bytes:
        letters, begins, stops, keys, sizes = _split_ascii(letters, ascii_letters(), first, last)
    else:
        begins, stops, keys, sizes = _split_unicode(letters, unicode_kinds(), first, last)
    exact = 8 if by_bytes else 0
    edges = np.cumsum(sizes)[sentences]  # (texts + 1,) limits of the texts, in words
    if stem:
        ids, _ = number_words(letters, begins, stops, keys, exact, edges[[0, -1]])
        ids, distinct = renumber(_number_stems(letters, begins[edges[0] :], stops[edges[0] :], ids), edges - edges[0])
    else:
        ids, distinct = number_words(letters, begins, stops, keys, exact, edges)
    sizes = sizes[1:]
    if stopwords:
        rows = np.repeat(np.arange(len(sizes)), sizes)[ids >= 0]
        ids, sizes = ids[ids >= 0], np.bincount(rows, minlength=len(sizes))
    return Words(Ragged.from_lengths(ids, sizes), sentences, distinct)


def _letters(
    texts: Sequence[str], sentence_starts: Ragged, stopwords: Collection[str], by_bytes: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Concatenate the letters of the stopwords and of all texts, and find the limits of their sentences.

    Returns ``(letters,)`` uint8 (bytes) or uint32 (code points); the first letter of each sentence and the letter after
    its last, ``(1 + sentences,)`` int64 each, with the stopwords as the first sentence.
    """
    encoded, starts = [_encode(" ".join(sorted(stopwords)), np.zeros(1, np.int64), by_bytes)[0]], []
    for row, text in enumerate(texts):
        data, begins = _encode(text, sentence_starts[row], by_bytes)
        encoded.append(data)
        starts.append(begins)
    letters = np.frombuffer(b"".join(encoded), np.uint8 if by_bytes else np.uint32)
    ends = np.cumsum([len(data) for data in encoded]) // letters.itemsize  # (1 + texts,)
    first = np.concatenate([[0], *(start + end for start, end in zip(starts, ends, strict=False))]).astype(np.int64)
    last = np.append(first[1:], ends[-1])
    filled = np.append(True, sentence_starts.lengths > 0)
    last[sentence_starts.compact().offsets[filled]] = ends[filled]
    return letters, first, last


def token_words(tokens: Ragged, sentence_starts: Ragged) -> Words:
    """Use token ids as words, as BART-LS does; ``sentence_starts``: n rows, first token of each sentence, ascending."""
    starts = sentence_starts.compact()
    filled = starts.lengths > 0
    first = tokens.lengths.copy()  # a row without sentences has no words
    first[filled] = starts.values[starts.offsets[:-1][filled]]
    rows = tokens.cut(np.arange(len(tokens)), first, tokens.lengths - first)
    begins = starts.values + np.repeat(rows.offsets[:-1] - first, starts.lengths)
    offsets = np.append(begins, rows.offsets[-1]).astype(np.int64)
    ids, distinct = renumber(rows.values, rows.offsets)
    return Words(Ragged(ids, offsets), starts.offsets, distinct)


def _encode(text: str, starts: np.ndarray, by_bytes: bool) -> tuple[bytes, np.ndarray]:
    """Encode a text as UTF-8, or in lower case as UTF-32; return also the positions of the characters ``starts``."""
    if "\u0130" in text:  # the only character that becomes two in lower case: i and a combining dot
        starts = starts + np.searchsorted([match.start() for match in re.finditer("\u0130", text)], starts)
        text = text.replace("\u0130", "i\u0307")
    if by_bytes:
        data = text.replace("\u212a", "k").encode()  # the Kelvin sign, whose lower case is ASCII, too
        return data, byte_offsets(data, starts)
    return text.lower().encode("utf-32-le"), starts


@compiled
def _split_ascii(
    data: np.ndarray, folded: np.ndarray, first: np.ndarray, last: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Split the sentences ``data[first[i]:last[i]]`` into words: runs of bytes for which ``folded`` gives letters.

    At every byte, the word that would end there is written. This avoids branches, which are unpredictable at word ends.

    Returns all letters in lower case; for each word its first letter, the end of its last, and a key, which is equal
    for equal words and different for different words of up to 8 letters; for each sentence its number of words.
    """
    letters = np.empty(len(data), np.uint8)
    room = len(data) // 2 + len(first) + 1
    begins, ends, keys = np.empty(room, np.int64), np.empty(room, np.int64), np.empty(room, np.uint64)
    sizes = np.empty(len(first), np.int64)
    word = 0
    for sentence in range(len(first)):
        before, begin, key, inside = word, 0, np.uint64(0), False
        for position in range(first[sentence], last[sentence]):
            letter = folded[data[position]]
            letters[position] = letter
            begin = begin if inside else position
            word += inside and letter == 0
            inside = letter > 0
            key = ((key << _8 | key >> _56) ^ np.uint64(letter)) if inside else np.uint64(0)
            begins[word], ends[word], keys[word] = begin, position + 1, key
        word += inside
        sizes[sentence] = word - before
    return letters, begins[:word], ends[:word], keys[:word], sizes


@compiled
def _split_unicode(
    letters: np.ndarray, kinds: np.ndarray, first: np.ndarray, last: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Split the sentences ``letters[first[i]:last[i]]`` into words; return as ``_split_ascii``, with hashed keys."""
    begins, ends = np.empty(len(letters), np.int64), np.empty(len(letters), np.int64)
    keys, sizes = np.empty(len(letters), np.uint64), np.zeros(len(first), np.int64)
    word = 0
    for sentence in range(len(first)):
        before, state = word, SEPARATOR
        for position in range(first[sentence], last[sentence]):
            kind = kinds[letters[position]]
            if kind == SEPARATOR:
                state = SEPARATOR
                continue
            if kind == SINGLE or (kind == LETTER and state != LETTER):
                begins[word], keys[word] = position, 0
                word += 1
                state = kind
            if kind != JOINER and state != SEPARATOR:
                ends[word - 1] = position + 1
                keys[word - 1] = mix_letter(keys[word - 1], letters[position])
        sizes[sentence] = word - before
    return begins[:word], ends[:word], keys[:word], sizes


def _number_stems(letters: np.ndarray, begins: np.ndarray, ends: np.ndarray, ids: np.ndarray) -> np.ndarray:
    """Replace ids, numbered over the whole batch, by numbers of the words' stems, keeping -1."""
    # ids are numbered by first occurrence, so a word occurs for the first time where the id exceeds all before it
    firsts = np.flatnonzero(ids > np.maximum.accumulate(np.append(np.int32(-1), ids[:-1])))
    coding = "ascii" if letters.itemsize == 1 else "utf-32-le"
    numbers: dict[str, int] = {}
    stems = np.full(len(firsts) + 1, -1, np.int32)  # ids of -1 index the last entry
    for i, (begin, end) in enumerate(zip(begins[firsts].tolist(), ends[firsts].tolist(), strict=True)):
        stem = _stem(letters[begin:end].tobytes().decode(coding))
        stems[i] = numbers.setdefault(stem, len(numbers))
    return stems[ids]


@functools.lru_cache(maxsize=1 << 17)
def _stem(word: str) -> str:
    return _porter().stem(word) if len(word) > 3 else word


@functools.cache
def _porter():  # type: ignore[no-untyped-def]
    from nltk.stem.porter import PorterStemmer  # takes a second to import, and is rarely needed

    return PorterStemmer()


# Kinds of characters. A joiner is part of a word only inside it, so a direction mark at a word's edge does not make it
# another word.
SEPARATOR, LETTER, MARK, JOINER, SINGLE = range(5)

# Scripts without spaces between words, where each letter is a word: first and last code point of their blocks.
# Katakana is not included: its runs are mostly single loanwords, and stay together as in Unicode's UAX #29.
_WITHOUT_SPACES = (
    (0x0E00, 0x0EFF),  # Thai, Lao
    (0x1000, 0x109F),  # Myanmar
    (0x1780, 0x17FF),  # Khmer
    (0x1950, 0x19DF),  # Tai Le, New Tai Lue
    (0x1A20, 0x1AAF),  # Tai Tham
    (0x2E80, 0x2FDF),  # radicals of Han
    (0x3005, 0x3007),  # iteration mark, closing mark and zero of Han
    (0x3021, 0x3029),  # numerals of Han
    (0x3041, 0x309F),  # Hiragana
    (0x3400, 0x4DBF),  # Han
    (0x4E00, 0x9FFF),
    (0xF900, 0xFAFF),
    (0x1B001, 0x1B11F),  # Hiragana, historic
    (0x1B132, 0x1B152),
    (0x20000, 0x3FFFF),
)
_KINDS = {"L": LETTER, "N": LETTER, "M": MARK, "Cf": JOINER}


@functools.cache
def ascii_letters() -> np.ndarray:
    """Map each byte of UTF-8 to an ASCII letter in lower case, a digit, or 0 for separators: ``(256,)`` uint8."""
    lower = bytes(range(256)).lower()  # ASCII only
    return np.array([byte if byte < 128 and chr(byte).isalnum() else 0 for byte in lower], np.uint8)


@functools.cache
def unicode_kinds() -> np.ndarray:
    """Map each code point to its kind, ``(0x110000,)`` uint8, by the general categories of Python's Unicode version.

    Letters and numbers of any script form words, and combining marks and format characters continue them. Each letter
    of a script without spaces is a word. All other characters separate words, including emoji.
    """
    categories = map(unicodedata.category, map(chr, range(sys.maxunicode + 1)))
    table = np.fromiter((_KINDS.get(name, _KINDS.get(name[0], SEPARATOR)) for name in categories), np.uint8)
    for first, last in _WITHOUT_SPACES:
        for code in range(first, last + 1):
            if table[code] == LETTER and not chr(code).isdecimal():
                table[code] = SINGLE
    return table
