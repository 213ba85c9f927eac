"""ROUGE over whole blocks of texts, without a Python object for any word.

Words are runs of ASCII letters and digits after lowercasing, and scores are float64: both as in Google's
``rouge_score`` without its stemmer, bit for bit. ``split_words`` turns words into numbers once; scores are functions of
those numbers.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numba
import numpy as np

from corpora.ragged import Ragged
from corpora.text_offsets import byte_offsets


@dataclass(frozen=True, slots=True)
class Words:
    """The words of n texts, numbered within each text in the order of their first occurrence.

    Attributes:
        ids: one row of int32 a sentence, over all texts.
        sentences: ``(n + 1,)`` int64: the sentences of text i are rows ``sentences[i]:sentences[i + 1]`` of ``ids``.
        distinct: ``(n,)`` int64, different words in each text.
    """

    ids: Ragged
    sentences: np.ndarray
    distinct: np.ndarray


def split_words(texts: Sequence[str], sentence_starts: Ragged, stopwords: Collection[str] = ()) -> Words:
    """Number the words of n texts, sentence by sentence; where a sentence ends, a word ends.

    Args:
        texts: in any script, without lone surrogates; what is no ASCII letter or digit after lowercasing separates
            words.
        sentence_starts: n rows, the characters at which sentences begin, ascending; a sentence ends where the next
            begins, the last with its text.
        stopwords: words to leave out.
    """
    encoded = [_encode(text) for text in [" ".join(sorted(stopwords)), *texts]]
    ends = np.cumsum([len(part) for part in encoded])  # (1 + texts,) bytes
    starts = [byte_offsets(text, sentence_starts[row]) for row, text in enumerate(texts)]
    # first, last: (1 + sentences,) bytes between which a sentence lies; the stopwords are the first
    first = np.concatenate([[0], *(own + end for own, end in zip(starts, ends, strict=False))]).astype(np.int64)
    last = np.append(first[1:], ends[-1])
    sentences = sentence_starts.compact().offsets
    filled = np.append(True, sentence_starts.lengths > 0)
    last[sentences[filled]] = ends[filled]
    letters, word_ends, hashes, sizes = _split(np.frombuffer(b"".join(encoded), np.uint8), first, last)
    edges = np.cumsum(sizes)[sentences]  # (texts + 1,) words at which the texts begin and end
    ids, distinct = _number(letters, word_ends, hashes, edges)
    sizes = sizes[1:]
    if stopwords:
        rows = np.repeat(np.arange(len(sizes)), sizes)[ids >= 0]
        ids, sizes = ids[ids >= 0], np.bincount(rows, minlength=len(sizes))
    return Words(Ragged.from_lengths(ids, sizes), sentences, distinct)


def principal_scores(words: Words) -> Ragged:
    """ROUGE-1 F1 of every sentence against the rest of its text: n rows of float64, one number a sentence.

    A word counts as often as both sides have it; denominators are at least 1, so a sentence without words, or whose
    words occur nowhere else, scores 0. Source: Zhang et al. 2020 (PEGASUS), section 3.1, variant Ind-Orig.
    """
    scores = np.zeros(len(words.ids), np.float64)
    _score(words.ids.values, words.ids.offsets, words.sentences, words.distinct, scores)
    return Ragged(scores, words.sentences)


@numba.njit(cache=True, nogil=True)
def _score(ids: np.ndarray, edges: np.ndarray, sentences: np.ndarray, distinct: np.ndarray, scores: np.ndarray) -> None:
    whole = np.zeros(distinct.max() if len(distinct) else 0, np.int64)  # occurrences in the text
    own = np.zeros_like(whole)  # occurrences in the sentence up to the word in hand
    for text in range(len(distinct)):
        first, last = sentences[text], sentences[text + 1]
        whole[: distinct[text]] = 0
        for word in ids[edges[first] : edges[last]]:
            whole[word] += 1
        total = edges[last] - edges[first]
        for sentence in range(first, last):
            words = ids[edges[sentence] : edges[sentence + 1]]
            common = 0
            for word in words:
                rest = whole[word] - own[word]
                common += min(own[word] + 1, rest - 1) - min(own[word], rest)
                own[word] += 1
            for word in words:
                own[word] = 0
            precision = common / max(len(words), 1)
            recall = common / max(total - len(words), 1)
            if common > 0:
                scores[sentence] = 2 * precision * recall / (precision + recall)


# What a byte of UTF-8 is in a word: itself, 0 where it separates words, _SKIPPED where it does neither. 0xFF is in no
# UTF-8; ``_encode`` puts it there.
_SKIPPED = 1
_LETTERS = np.array(
    [byte if chr(byte).isascii() and chr(byte).isalnum() else 0 for byte in bytes(range(256)).lower()], np.uint8
)
_LETTERS[0xFF] = _SKIPPED
# FNV-1a, 64 bits
_BASIS, _PRIME = np.uint64(0xCBF29CE484222325), np.uint64(0x100000001B3)


def _encode(text: str) -> bytes:
    """UTF-8 in which the two characters beyond ASCII that have an ASCII letter in lower case are spelt with it.

    U+0130 becomes i and a combining dot, U+212A (Kelvin) k. No byte moves.
    """
    data = text.encode()
    return data if text.isascii() else data.replace(b"\xc4\xb0", b"i\x80").replace(b"\xe2\x84\xaa", b"k\xff\xff")


@numba.njit(cache=True, nogil=True)
def _split(
    data: np.ndarray, first: np.ndarray, last: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Lowercased words of sentences ``data[first[i]:last[i]]``, one after the other without gaps.

    Returns:
        letters, and for each word its end in them and its hash; for each sentence its number of words.
    """
    letters = np.empty(len(data), np.uint8)
    most = len(data) // 2 + len(first) + 1
    ends, hashes = np.empty(most, np.int64), np.empty(most, np.uint64)
    sizes = np.zeros(len(first), np.int64)
    word = begin = end = 0
    value = _BASIS
    for sentence in range(len(first)):
        for position in range(first[sentence], last[sentence] + 1):
            letter = _LETTERS[data[position]] if position < last[sentence] else np.uint8(0)
            if letter > _SKIPPED:
                letters[end] = letter
                value = (value ^ np.uint64(letter)) * _PRIME
                end += 1
            elif letter == 0 and end > begin:
                ends[word], hashes[word] = end, value
                sizes[sentence] += 1
                word, begin, value = word + 1, end, _BASIS
    return letters[:end], ends[:word], hashes[:word], sizes


@numba.njit(cache=True, nogil=True)
def _number(
    letters: np.ndarray, ends: np.ndarray, hashes: np.ndarray, edges: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Number the words of each text by first occurrence: open addressing, words compared letter by letter.

    Args:
        letters, ends, hashes: of ``_split``; words before ``edges[0]`` are stopwords.
        edges: the words at which the texts begin and end.

    Returns:
        ids of the texts' words, -1 for stopwords, and the number of ids that each text has.
    """
    stop = edges[0]
    size = 16
    for text in range(len(edges) - 1):
        while size < 2 * (stop + edges[text + 1] - edges[text]):
            size *= 2
    places = np.empty(size, np.int64)  # the first word that fell into each place
    owners = np.full(size, -1, np.int64)  # the text that this was in
    numbers = np.empty(size, np.int32)
    ids = np.empty(edges[-1] - stop, np.int32)
    distinct = np.zeros(len(edges) - 1, np.int64)
    for text in range(len(distinct)):
        for step in range(stop + edges[text + 1] - edges[text]):
            word = step if step < stop else edges[text] + step - stop
            start = ends[word - 1] if word else 0
            length = ends[word] - start
            place = np.int64(hashes[word] >> np.uint64(20)) & (size - 1)
            while owners[place] == text:
                other = places[place]
                begin = ends[other - 1] if other else 0
                same = hashes[other] == hashes[word] and ends[other] - begin == length
                i = 0
                while same and i < length:
                    same = letters[start + i] == letters[begin + i]
                    i += 1
                if same:
                    break
                place = (place + 1) & (size - 1)
            if owners[place] != text:
                owners[place], places[place], numbers[place] = text, word, -1
                if step >= stop:
                    numbers[place] = distinct[text]
                    distinct[text] += 1
            if step >= stop:
                ids[word - stop] = numbers[place]
    return ids, distinct
