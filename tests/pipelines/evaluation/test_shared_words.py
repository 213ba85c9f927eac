"""Marks on shared words: as many as ROUGE-1 counts."""

from __future__ import annotations

import re
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.evaluation.shared_words import nearest_reference, shared_words

TEXTS = st.lists(st.sampled_from(["fox", "Fox", "dog", "ran", ",", " ", "\n", "über"]), max_size=12).map(" ".join)


def words(text: str) -> Counter:
    return Counter(re.findall(r"\w+", text.casefold()))


@given(TEXTS, TEXTS)
def test_as_many_words_are_marked_as_both_have(text, other):
    pieces = shared_words(text, other)
    assert "".join(piece.text for piece in pieces) == text
    assert [piece.start for piece in pieces] == [
        sum(len(before.text) for before in pieces[:number]) for number in range(len(pieces))
    ]
    marked = words(" ".join(piece.text for piece in pieces if piece.kind == "shared"))
    assert marked == words(text) & words(other)
    again = shared_words(other, text)
    assert words(" ".join(piece.text for piece in again if piece.kind == "shared")) == marked


def test_white_space_between_marked_words_is_marked():
    assert [(piece.text, piece.kind) for piece in shared_words("The quick fox, the dog.", "the QUICK fox the")] == [
        ("The quick fox", "shared"),
        (", ", "text"),
        ("the", "shared"),
        (" dog.", "text"),
    ]


@pytest.mark.parametrize(
    ("references", "nearest"), [((), -1), (("",), 0), (("a b", "fox", "a fox ran"), 1), (("fox ran", "ran fox"), 0)]
)
def test_the_nearest_reference_has_the_best_f1(references, nearest):
    assert nearest_reference("fox", references) == nearest
