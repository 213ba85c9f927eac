"""Byte offsets are the lengths of what precedes a character."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from corpora.text.utf8 import byte_offsets, character_offsets

texts = st.one_of(st.text(max_size=40), st.text("aé中😀", max_size=200))


@given(texts, st.lists(st.integers(0, 200)))
def test_offsets_are_lengths_of_what_comes_before(text, characters):
    characters = sorted(min(character, len(text)) for character in characters)
    expected = [len(text[:character].encode()) for character in characters]
    for given_as in (text, text.encode()):
        assert byte_offsets(given_as, np.array(characters, np.int64)).tolist() == expected


@given(texts, st.sets(st.integers(0, 200)))
def test_characters_before_a_byte(text, characters):
    characters = np.array(sorted(c for c in characters if c < len(text)), np.int64)
    data = text.encode()
    assert character_offsets(data, byte_offsets(text, characters)).tolist() == characters.tolist()
