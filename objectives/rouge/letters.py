"""Character classes that define words, as tables over bytes and code points for compiled code."""

from __future__ import annotations

import functools
import sys
import unicodedata

import numpy as np

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
