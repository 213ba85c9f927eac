"""Decoding of ids to text with the position of each token, for vocabularies of strings (not byte-level).

The text of a piece depends only on whether it is the first and whether it is a byte. So the decoder of a tokenizer.json
becomes two tables of strings, and decoding is a join.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from corpora.errors import FarspanError

_BYTE_PIECE = re.compile(r"<0x([0-9A-Fa-f]{2})>")


@dataclass(frozen=True)
class PieceTables:
    """Tables of the text of each id.

    Attributes:
        first, later: ``vocab`` strings each: the text of an id at the beginning, and elsewhere.
        bytes: ``(vocab,)`` int16, the byte that an id stands for, else -1.
        lengths: ``(vocab,)`` int64, characters of ``later``.
        strip: (character, maximum number at the beginning, at the end) to remove from the whole text, in order.
    """

    first: Sequence[str]
    later: Sequence[str]
    bytes: np.ndarray
    lengths: np.ndarray
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
