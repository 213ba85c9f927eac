"""Tables of characters against Unicode's names and categories."""

from __future__ import annotations

import unicodedata

import pytest

from objectives.rouge.letters import JOINER, LETTER, MARK, SEPARATOR, SINGLE, ascii_letters, unicode_kinds
from tests.objectives.rouge.test_words import split


def test_the_kinds_of_characters_without_spaces():
    """Every ideograph and kana of Hiragana is a word; no letter of a script with spaces is."""
    prefixes = ("CJK UNIFIED IDEOGRAPH", "CJK COMPATIBILITY IDEOGRAPH", "HIRAGANA LETTER", "HENTAIGANA LETTER")
    letters = [chr(code) for code in range(0x110000) if unicodedata.name(chr(code), "").startswith(prefixes)]
    found = split([["".join(letters)]], words="unicode")
    assert len(found.ids.values) == len(letters) > 90_000
    assert split([["aбγकगعא가ア" * 3]], words="unicode").ids.values.tolist() == [0]


def test_bytes_are_lower_case_letters_digits_or_separators():
    table = ascii_letters()
    for byte in range(256):
        expected = bytes([byte]).lower()[0] if byte < 128 and chr(byte).isalnum() else 0
        assert table[byte] == expected


@pytest.mark.parametrize(
    ("kind", "characters"),
    [
        (LETTER, "aÉß9½Ⅷ한Жक"),
        (MARK, "\u0301\u0651\u0e31"),
        (JOINER, "\u200c\u200d\u200f\u00ad"),
        (SINGLE, "猫あのไກ々"),
        (SEPARATOR, " .-_\u3000😀\u2028\u00a0、"),
    ],
)
def test_kinds_of_characters(kind, characters):
    assert {character: int(unicode_kinds()[ord(character)]) for character in characters} == dict.fromkeys(
        characters, kind
    )


def test_digits_of_scripts_without_spaces_form_numbers():
    """Thai and Lao digits are decimal, so a number is one word; the zero of Han is not."""
    kinds = unicode_kinds()
    assert {int(kinds[ord(digit)]) for digit in "๐๙໐໙០៩"} == {LETTER}
    assert kinds[ord("〇")] == SINGLE
