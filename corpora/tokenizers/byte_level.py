"""Byte-level BPE: the byte alphabet, faster engines for Hugging Face merges, and decoding with positions.

A byte-level vocabulary writes each of the 256 bytes as one printable character (GPT-2). tiktoken merges by the rank of
the *result*, and uses a word's own id if the word is in the vocabulary; Hugging Face merges listed *pairs*. Both give
the same ids if every merge has a unique result, and every result, encoded alone, becomes a single id: then the merges
inside a token do not depend on its context. ``tiktoken_engine`` verifies these conditions.
"""

from __future__ import annotations

import codecs
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import tokenizers

from corpora.tokenizers.gigatoken_engine import GigatokenEngine, gigatoken_engine, passages

# Patterns for which the two regular-expression engines agree on every code point (tested), each with an equivalent one
# that tiktoken runs without backtracking over long runs.
_GPT2 = r"""'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"""
_GPT4 = (
    r"""(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"""
    r"""|\s*[\r\n]+|\s+(?!\S)|\s+"""
)
_PATTERNS = {
    _GPT2: r"""'(?:[stmd]|re|ve|ll)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s+""",
    _GPT4: _GPT4,
}

_PROBES = [
    "",
    " ",
    "  ",
    "a",
    " a",
    "a  b",
    "a\n\n b",
    "\r\n",
    "\t\tx",
    "x \n",
    "-----!!!???....",
    "<s>x</s>",
    "a" * 25,
]
_PROBES += ["it's I'LL we'd 'tis ''s don't've", "naïve café e\u0301", "日本語 中文。", "שלום مرحبا", "１２ ²³ ½ Ⅷ x1y2"]
_PROBES += ["👩\u200d👧 🇫🇷", "\x00\x01\x7f", "\u200d\ufeff", "a\u00a0b\u2003c\u3000d", "\u2028\u2029\x85\x1c"]


def byte_of_character() -> dict[str, int]:
    """Return the alphabet: printable Latin-1 bytes stand for themselves; the other 68 are U+0100 and following."""
    printable = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in set(printable)]
    return {chr(byte): byte for byte in printable} | {chr(0x100 + i): byte for i, byte in enumerate(others)}


_BYTE = byte_of_character()
_TABLE = str.maketrans({character: chr(byte) for character, byte in _BYTE.items()})
_FIRST = 1 << 18  # characters that are encoded before the faster engine is loaded, which takes about as long


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


class TiktokenEngine:
    """An encoder that uses tiktoken, and after ``_FIRST`` characters a faster engine, and gives Hugging Face's ids.

    Attributes:
        prefix_space: True if a space is inserted before a text that does not start with one.
    """

    def __init__(
        self,
        pattern: str,
        tokens: Sequence[bytes],
        ids: np.ndarray,
        prefix_space: bool,
        load_faster: Callable[[], GigatokenEngine | None] = lambda: None,
    ) -> None:
        """``tokens``: bytes of each token, in the order of the merges. ``ids``: ``(tokens,)`` int64, their ids.
        ``load_faster``: loads an engine with the same ids, in a fraction of a second; None if there is none.
        """
        import tiktoken  # loaded here because a command that encodes nothing does not need it

        ranks = {token: rank for rank, token in enumerate(tokens)}
        self._encoding = tiktoken.Encoding("farspan", pat_str=pattern, mergeable_ranks=ranks, special_tokens={})
        self._ids = ids.astype(np.int32)
        self.prefix_space = prefix_space
        self._load_faster = load_faster
        self._first = _FIRST

    @cached_property
    def _faster(self) -> GigatokenEngine | None:
        return self._load_faster()

    @property
    def name(self) -> str:
        """Library that encodes long inputs."""
        return "gigatoken" if self._faster else "tiktoken"

    def encode(self, text: str) -> np.ndarray:
        """Encode a text to ids, ``(n,)`` int32."""
        self._first -= len(text)
        if self._first > 0:
            return self._encode_slowly(text)
        if (ids := self._encode_fast(text)) is not None:
            return ids
        parts = passages(text) if self._faster else [text]
        rows = [self._encode_slowly(part) if (ids := self._encode_fast(part)) is None else ids for part in parts]
        return rows[0] if len(rows) == 1 else np.concatenate(rows)

    def _encode_fast(self, text: str) -> np.ndarray | None:
        return None if self._faster is None else self._faster.encode(text)

    def _encode_slowly(self, text: str) -> np.ndarray:
        if self.prefix_space and text and not text.startswith(" "):
            text = " " + text
        return self._ids[self._encoding.encode_to_numpy(text, disallowed_special=())]


def byte_level_split(config: Mapping[str, Any]) -> tuple[str, bool] | None:
    """Return the split of a byte-level BPE whose ids are the bytes of the text, else None.

    Returns pattern: regular expression that splits a text into words, for tiktoken. prefix_space: True if a space is
    inserted before a text that does not start with one.
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
    return _split(config.get("pre_tokenizer"))


def tiktoken_engine(config: dict[str, Any], reference: tokenizers.Tokenizer) -> TiktokenEngine | None:
    """Make an engine with the merges of a tokenizer.json; None if its ids could differ from Hugging Face's.

    ``reference``: the same tokenizer in Hugging Face's library, treating special tokens as text.
    """
    split = byte_level_split(config)
    if split is None:
        return None
    model = config["model"]
    vocab = model["vocab"]
    pairs = [pair.split(" ") if isinstance(pair, str) else pair for pair in model["merges"]]
    written = sorted(_BYTE, key=_BYTE.__getitem__) + [left + right for left, right in pairs]
    if (
        len(set(written)) != len(written)
        or not vocab.keys() >= set(written)
        or not set("".join(written)) <= _BYTE.keys()
    ):
        return None
    ids = np.array([vocab[token] for token in written], np.int64)
    if any([part.id for part in reference.model.tokenize(token)] != [vocab[token]] for token in written):
        return None
    pattern, prefix_space = split
    engine = TiktokenEngine(
        pattern,
        bytes_of_tokens(written),
        ids,
        prefix_space,
        lambda: gigatoken_engine(config, reference, _PROBES),
    )
    same = all(engine.encode(text).tolist() == reference.encode(text).ids for text in _PROBES)
    return engine if same else None


def _split(pre_tokenizer: dict[str, Any] | None) -> tuple[str, bool] | None:
    """Return (pattern, prefix space) of a pre-tokenizer that tiktoken can replace, else None."""
    steps = (pre_tokenizer or {}).get("pretokenizers", [pre_tokenizer])
    match steps:
        case [{"type": "ByteLevel", "add_prefix_space": bool(space), **rest}] if rest.get("use_regex", True):
            return _PATTERNS[_GPT2], space
        case [
            {"type": "Split", "pattern": {"Regex": str(pattern)}, "behavior": "Isolated", "invert": False},
            {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False},
        ] if pattern in _PATTERNS:
            return _PATTERNS[pattern], False
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
