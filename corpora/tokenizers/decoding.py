"""Decoding of ids to text with the position of each token.

In a vocabulary of strings, the text of a piece depends only on whether it is the first and whether it is a byte. So the
decoder of a tokenizer.json becomes two tables of strings, and decoding is a join. A byte-level vocabulary (GPT-2)
writes each of the 256 bytes as one printable character.
"""

from __future__ import annotations

import codecs
import re
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from corpora.errors import FarspanError

_BYTE_PIECE = re.compile(r"<0x([0-9A-Fa-f]{2})>")


@dataclass(frozen=True)
class PieceTables:
    """Tables of the text of each id."""

    first: Sequence[str]  # of each id at the beginning of the text
    later: Sequence[str]  # of each id elsewhere
    bytes: np.ndarray  # (vocab,) int16, the byte that an id stands for, else -1
    lengths: np.ndarray  # (vocab,) int64, characters of ``later``
    # (character, maximum number at the beginning, at the end) to remove from the whole text, in order
    strip: Sequence[tuple[str, int, int]] = ()

    @classmethod
    def build(
        cls, first: Sequence[str], later: Sequence[str], numbers: Iterable[int], strip: Sequence[tuple[str, int, int]]
    ) -> PieceTables:
        """Make tables from the strings and the byte (or -1) of each id."""
        lengths = np.fromiter(map(len, later), np.int64, len(later))
        return cls(first, later, np.fromiter(numbers, np.int16, len(later)), lengths, strip)

    def decode(self, ids: np.ndarray) -> tuple[str, np.ndarray]:
        """Return the text of ids ``(n,)``, and the first character of each, ``(n,)`` int64."""
        pieces = list(map(self.later.__getitem__, ids.tolist()))
        lengths = self.lengths[ids]
        if pieces:
            pieces[0] = self.first[int(ids[0])]
            lengths[0] = len(pieces[0])
        is_byte = self.bytes[ids] >= 0
        if is_byte.any():
            self._join_bytes(ids, is_byte, pieces, lengths)
        starts = np.cumsum(lengths) - lengths
        text = "".join(pieces)
        for character, left, right in self.strip:
            kept = text[min(left, len(text) - len(text.lstrip(character))) :]
            starts -= len(text) - len(kept)
            text = kept[: len(kept) - min(right, len(kept) - len(kept.rstrip(character)))]
        return text, starts.clip(0, len(text))

    def _join_bytes(self, ids: np.ndarray, is_byte: np.ndarray, pieces: list[str], lengths: np.ndarray) -> None:
        """Write the text of each run of byte pieces into ``pieces``, or one U+FFFD per byte if it is not UTF-8."""
        edges = np.flatnonzero(np.diff(is_byte, prepend=False, append=False))
        for start, stop in edges.reshape(-1, 2).tolist():
            data = self.bytes[ids[start:stop]].astype(np.uint8)
            try:
                characters = iter(data.tobytes().decode())
            except UnicodeDecodeError:
                pieces[start:stop] = ["\ufffd"] * (stop - start)
                lengths[start:stop] = 1
                continue
            ends = np.append(((data & 0xC0) != 0x80)[1:], True)  # a character belongs to its last byte ...
            pieces[start:stop] = [next(characters) if end else "" for end in ends]
            lengths[start:stop] = ends  # ... so that the starts of all its bytes point at it


def piece_tables(decoder: dict[str, Any] | None, tokens: Sequence[str]) -> PieceTables:
    """Make tables of the text that the ``decoder`` of a tokenizer.json gives each token.

    ``decoder``: parsed; None joins the tokens with spaces. ``tokens``: the vocabulary in the order of ids, with "" for
    ids that do not exist.
    """
    first, later = list(tokens), list(tokens)
    numbers = [-1] * len(tokens)
    strip: list[tuple[str, int, int]] = []
    fused = bytes_seen = False
    if decoder is None:
        return PieceTables.build(first, [" " + token for token in later], numbers, strip)
    for step in decoder.get("decoders", [decoder]):
        match step:
            case {"type": "Fuse"}:
                fused = True
            case {"type": "Strip", "content": str(character), "start": int(left), "stop": int(right)} if fused:
                strip.append((character, left, right))
            case _ if fused or bytes_seen:
                raise _unsupported(step, "after ByteFallback or Fuse")
            case {"type": "ByteFallback"}:
                bytes_seen = True
                matches = [_BYTE_PIECE.fullmatch(token) for token in later]
                numbers = [int(match[1], 16) if match else -1 for match in matches]
            case {"type": "Metaspace", "replacement": str(mark)}:
                scheme = step.get("prepend_scheme", "always" if step.get("add_prefix_space", True) else "never")
                first = [token.replace(mark, " " if scheme == "never" else "") for token in first]
                later = [token.replace(mark, " ") for token in later]
            case {"type": "Replace", "pattern": {"String": str(pattern)}, "content": str(content)}:
                first = [token.replace(pattern, content) for token in first]
                later = [token.replace(pattern, content) for token in later]
            case {"type": "WordPiece", "prefix": str(prefix), "cleanup": bool(cleanup)}:
                later = [token.removeprefix(prefix) if token.startswith(prefix) else " " + token for token in later]
                if cleanup:
                    first, later = list(map(_clean_up, first)), list(map(_clean_up, later))
            case _:
                raise _unsupported(step, "here")
    return PieceTables.build(first, later, numbers, strip)


def _unsupported(step: dict[str, Any], where: str) -> FarspanError:
    return FarspanError(
        f"tokenizer.json: decoder {step.get('type')!r} is not supported {where}; use a tokenizer with a ByteLevel, "
        "Metaspace, WordPiece or SentencePiece-like (Replace, ByteFallback, Fuse, Strip) decoder"
    )


def _clean_up(piece: str) -> str:
    for old, new in (
        *((" .", "."), (" ?", "?"), (" !", "!"), (" ,", ","), (" ' ", "'"), (" n't", "n't"), (" 'm", "'m")),
        *((" do not", " don't"), (" 's", "'s"), (" 've", "'ve"), (" 're", "'re")),
    ):
        piece = piece.replace(old, new)
    return piece


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


def token_bytes(token: str) -> bytes:
    """Return the bytes of ``token``; for a token with characters outside the alphabet (an added one), its UTF-8."""
    try:
        return bytes([_BYTE[character] for character in token])
    except KeyError:
        return token.encode()


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
