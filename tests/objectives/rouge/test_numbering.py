"""Numbers of words against a dictionary."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from objectives.rouge.numbering import mixed, number, renumber

words = st.lists(st.sampled_from([b"a", b"b", b"ab", b"ba", b"abababab", b"ababababa", b"bababababa"]), max_size=12)
texts = st.lists(words, max_size=4)


def by_dictionary(stopwords: list[bytes], texts: list[list[bytes]]) -> tuple[list[list[int]], list[int]]:
    ids, distinct = [], []
    for text in texts:
        numbers = dict.fromkeys(stopwords, -1)
        for word in text:
            numbers.setdefault(word, len(numbers) - len(set(stopwords)))
        ids.append([numbers[word] for word in text])
        distinct.append(len(numbers) - len(set(stopwords)))
    return ids, distinct


def key(word: bytes) -> int:
    value = np.uint64(0)
    for letter in word:
        value = np.uint64(mixed(value, letter))
    return int(value)


@given(words, texts, st.sampled_from(["hashed", "all equal", "exact"]))
def test_words_are_numbered_by_first_occurrence(stopwords, texts, keys):
    """Letters decide where keys are not exact, however many words share one."""
    flat = [*stopwords, *(word for text in texts for word in text)]
    ends = np.cumsum([0, *map(len, flat)])
    edges = np.cumsum([len(stopwords), *map(len, texts)])
    values = {
        "hashed": [key(word) for word in flat],
        "all equal": [0] * len(flat),
        "exact": [int.from_bytes(word[:7]) + (len(word) << 56) for word in flat],
    }[keys]
    ids, distinct = number(
        np.frombuffer(b"".join(flat), np.uint8).copy(),
        ends[:-1],
        ends[1:],
        np.array(values, np.uint64),
        7 if keys == "exact" else 0,
        edges,
    )
    expected, counts = by_dictionary(stopwords, texts)
    assert [ids[a - edges[0] : b - edges[0]].tolist() for a, b in pairwise(edges)] == expected
    assert distinct.tolist() == counts


def test_the_table_grows_with_a_text():
    """Two thousand words of one key each, in a table that begins with 256 slots."""
    letters = np.arange(2000, dtype=np.int32)
    keys = np.array([int(mixed(np.uint64(0), int(letter))) for letter in letters], np.uint64)
    ids, distinct = number(letters, np.arange(2000), np.arange(1, 2001), keys, 0, np.array([0, 2000]))
    assert ids.tolist() == list(range(2000))
    assert distinct.tolist() == [2000]


@given(st.lists(st.lists(st.integers(-1, 5), max_size=9), max_size=4))
def test_numbers_are_renumbered_within_each_text(texts):
    edges = np.cumsum([0, *map(len, texts)])
    ids, distinct = renumber(np.array([n for text in texts for n in text], np.int32), edges)
    for text, a, b, count in zip(texts, edges, edges[1:], distinct, strict=False):
        order = list(dict.fromkeys(n for n in text if n >= 0))
        assert ids[a:b].tolist() == [order.index(n) if n >= 0 else -1 for n in text]
        assert count == len(order)
