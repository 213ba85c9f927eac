"""Byte-level BPE: the byte alphabet, and decoding with positions.

A byte-level vocabulary writes each of the 256 bytes as one printable character (GPT-2).
"""

from __future__ import annotations

import codecs
import threading
from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any

import numpy as np

# Patterns with which gigatoken's ids are Hugging Face's (tested).
_GPT2 = r"""'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"""
_GPT4 = (
    r"""(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"""
    r"""|\s*[\r\n]+|\s+(?!\S)|\s+"""
)


def byte_of_character() -> dict[str, int]:
    """Return the alphabet: printable Latin-1 bytes stand for themselves; the other 68 are U+0100 and following."""
    printable = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in set(printable)]
    return {chr(byte): byte for byte in printable} | {chr(0x100 + i): byte for i, byte in enumerate(others)}


_BYTE = byte_of_character()
_TABLE = str.maketrans({character: chr(byte) for character, byte in _BYTE.items()})


def token_bytes(token: str) -> bytes:
    """Return the bytes of ``token``; for a token with characters outside the alphabet (an added one), its UTF-8."""
    try:
        return bytes([_BYTE[character] for character in token])
    except KeyError:
        return token.encode()


def bytes_of_tokens(tokens: Sequence[str]) -> list[bytes]:
    """Return ``token_bytes`` of each token."""
    text = "".join(tokens)
    if not set(text) <= _BYTE.keys():
        return [token_bytes(token) for token in tokens]
    data = text.translate(_TABLE).encode("latin-1")
    ends = list(accumulate(map(len, tokens)))
    return [data[start:end] for start, end in pairwise([0, *ends])]


def prefix_space(config: Mapping[str, Any]) -> bool | None:
    """Return True if a byte-level BPE inserts a space before a text that does not start with one, else False.

    None for a tokenizer of another kind, whose ids may be other bytes than those of the text.
    """
    model = config["model"]
    if (
        model.get("type") != "BPE"
        or config.get("normalizer")
        or any(not token["special"] for token in config.get("added_tokens", []))
        or any(model.get(name) for name in ("dropout", "continuing_subword_prefix", "end_of_word_suffix"))
        or any(model.get(name) for name in ("byte_fallback", "ignore_merges"))
        or not model["vocab"].keys() >= _BYTE.keys()
    ):
        return None
    return _find_prefix_space(config.get("pre_tokenizer"))


def _find_prefix_space(pre_tokenizer: dict[str, Any] | None) -> bool | None:
    """Return True or False for a pre-tokenizer that does or does not insert a space; None for an unknown one."""
    steps = (pre_tokenizer or {}).get("pretokenizers", [pre_tokenizer])
    match steps:
        case [{"type": "ByteLevel", "add_prefix_space": bool(space), **rest}] if rest.get("use_regex", True):
            return space
        case [
            {"type": "Split", "pattern": {"Regex": str(pattern)}, "behavior": "Isolated", "invert": False},
            {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False},
        ] if pattern in (_GPT2, _GPT4):
            return False
    return None


_replaced = threading.local()


def _record_replacement(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeDecodeError)
    _replaced.ranges.append((error.start, error.end))
    return "\ufffd", error.end


codecs.register_error("farspan.record", _record_replacement)


def decode_utf8(data: bytes, starts: np.ndarray) -> tuple[str, np.ndarray]:
    """Decode UTF-8, with U+FFFD for each broken part, and map byte positions to characters.

    ``starts``: ``(n,)`` int64 positions in ``data``, at most ``len(data)``. Returns text: the same as
    ``data.decode(errors="replace")``. characters: ``(n,)`` int64 indices into ``text``.
    """
    _replaced.ranges = []
    text = data.decode("utf-8", "farspan.record")
    if len(text) == len(data):  # every byte is a character of its own
        return text, starts
    begins = (np.frombuffer(data, np.uint8) & 0xC0) != 0x80  # (bytes,)
    for start, stop in _replaced.ranges:
        begins[start:stop] = False
        begins[start] = True
    character = np.append(np.cumsum(begins) - 1, len(text))
    return text, character[starts]
