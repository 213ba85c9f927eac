"""gigatoken as an engine for byte-level BPE: many times as fast as Hugging Face's library.

It is used if it is installed and returns Hugging Face's ids. Its tables of letters and digits are of another version of
Unicode, so passages with characters that the two libraries may classify differently are left to Hugging Face's.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tokenizers

# Outside these ranges, both libraries classify all characters alike (tested).
_UNLIKE = re.compile("[\u0850-\u101f\ua000-\U0010ffff]")
# Bytes that begin none of these characters in UTF-8. A text of such bytes alone is not searched.
_ALIKE = bytes(set(range(256)) - {0xE0, 0xE1, *range(0xEA, 0x100)})
# A new word starts with this space under every pattern, so text may be cut before it.
_CUT = re.compile("(?<=[0-9A-Za-z]) (?=[0-9A-Za-z])")
_PROBED = [*range(0x850), *range(0x2000, 0x2070), *range(0x3000, 0x3020), 0x1E9E, 0x20AC, 0x2160, 0x4E2D, 0x9FA5]
# gigatoken's cache of words has no limit, so it is loaded again (.1 s) after this many bytes of text, which fill at
# most .9 GB.
_BYTES_A_CACHE = 128_000_000
_PROBES = ["", " ", "  ", "a", " a", "a  b", "a\n\n b", "\r\n", "\t\tx", "x \n"]
_PROBES += ["-----!!!???....", "<s>x</s>", "a" * 25]
_PROBES += ["it's I'LL we'd 'tis ''s don't've", "naïve café e\u0301", "日本語 中文。", "שלום مرحبا", "１２ ²³ ½ Ⅷ x1y2"]
_PROBES += ["👩\u200d👧 🇫🇷", "\x00\x01\x7f", "\u200d\ufeff", "a\u00a0b\u2003c\u3000d", "\u2028\u2029\x85\x1c"]


class GigatokenEngine:
    """Encodes on the calling thread into the ids of ``reference``, in Hugging Face's library; ``load`` loads tables."""

    def __init__(self, load: Callable[[], Any], reference: tokenizers.Tokenizer) -> None:
        self._load, self._reference = load, reference
        self._backend = load()
        self._seen = 0

    def encode(self, text: str) -> np.ndarray:
        """Encode a text to ids, ``(n,)`` int32."""
        if (ids := self.encode_alike(text)) is not None:
            return ids
        return np.concatenate([self._encode_passage(part) for part in passages(text)])

    def _encode_passage(self, text: str) -> np.ndarray:
        if (ids := self.encode_alike(text)) is not None:
            return ids
        (encoding,) = self._reference.encode_batch_fast([text], add_special_tokens=False)
        return np.array(encoding.ids, np.int32)

    def encode_alike(self, text: str) -> np.ndarray | None:
        """Return the ids, ``(n,)`` int32, or None if the library may classify a character of the text differently."""
        data = text.encode()
        if not text.isascii() and data.translate(None, _ALIKE) and _UNLIKE.search(text):
            return None
        self._seen += len(data)
        if self._seen > _BYTES_A_CACHE:
            self._backend, self._seen = self._load(), len(data)
        return self._backend.encode(data).view(np.int32)


def passages(text: str) -> Iterator[str]:
    """Cut a text between words into passages, of which gigatoken can encode those without the excluded characters.

    The ids of the passages, concatenated, are the ids of the text.
    """
    done = 0
    while match := _UNLIKE.search(text, done):
        start = match.start()
        while start > done and not ((start := text.rfind(" ", done, start)) >= 0 and _CUT.match(text, start)):
            pass
        start = max(start, done)
        end = _CUT.search(text, match.end())
        if start > done:
            yield text[done:start]
        done = end.start() if end else len(text)
        yield text[start:done]
    if done < len(text):
        yield text[done:]


def gigatoken_engine(config: dict[str, Any], reference: tokenizers.Tokenizer) -> GigatokenEngine | None:
    """Load gigatoken for a tokenizer.json; None if it is not installed, rejects the file, or returns different ids.

    ``config`` has no normaliser, and special tokens alone are added ones, which ``reference`` treats as text.
    """
    try:
        from gigatoken.gigatoken_rs import load_hf_json
    except ImportError:
        return None
    # gigatoken would recognise added tokens in text.
    data = json.dumps(config | {"added_tokens": []})
    try:
        engine = GigatokenEngine(lambda: load_hf_json(data), reference)
    except Exception:  # whatever the library raises for a file that it does not support
        return None
    same = all(engine.encode(text).tolist() == reference.encode(text).ids for text in (*_PROBES, *_class_probes()))
    return engine if same else None


def _class_probes() -> Iterator[str]:
    """Yield texts with every character of ``_PROBED`` next to letters, digits, punctuation and white space."""
    for start in range(0, len(_PROBED), 500):
        characters = map(chr, _PROBED[start : start + 500])
        yield "".join(f"a{c}1{c}.{c} {c}a'{c}\n{c}" for c in characters)
