"""Hugging Face tokenizers (tokenizer.json); gigatoken encodes if it gives the same ids."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import numpy as np

from corpora.errors import FarspanError, one_line
from corpora.storage.ragged import Ragged
from corpora.text.utf8 import byte_offsets
from corpora.tokenizers.decoding import decode_utf8, piece_tables, prefix_space, token_bytes
from corpora.tokenizers.gigatoken_engine import GigatokenEngine, gigatoken_engine
from corpora.tokenizers.tokenizer_json import fingerprint_of, load, ordinary_pieces, parse, seal

# Jobs run several processes: without this, each of them would start a thread on every core, and forking would warn.
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

_FIRST = 1 << 17  # characters that are encoded before another engine is loaded, which takes about as long
MASK_NAMES = ("<mask>", "[MASK]")
_ROLES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "<pad>": (("pad_token",), ("<pad>", "[PAD]", "<|pad|>")),
    "<bos>": (("bos_token", "cls_token"), ("<s>", "<bos>", "[CLS]", "<|begin_of_text|>", "<|startoftext|>")),
    "<eos>": (("eos_token", "sep_token"), ("</s>", "<eos>", "[SEP]", "<|end_of_text|>", "<|endoftext|>")),
    "<unk>": (("unk_token",), ("<unk>", "[UNK]")),
    "<mask>": (("mask_token",), MASK_NAMES),
}
"""Role -> fields of special_tokens_map.json that name its token, and usual names of the token."""


class HuggingFaceTokenizer:
    """Tokenizer from a tokenizer.json. ``corpora.tokenizers.protocol.Tokenizer`` documents the members."""

    def __init__(self, data: bytes, special: Mapping[str, str] | None = None) -> None:
        """``special``: ``special_roles`` of the files beside it; None for the usual names."""
        self._data = data
        # Padding, truncation and post-processing are not part of text -> id; rendering adds special tokens.
        config = parse(data) | dict.fromkeys(("padding", "truncation", "post_processor"))
        if config["model"].get("dropout"):
            raise FarspanError('tokenizer.json: model.dropout makes ids random; set "dropout": null')
        self._tokenizer, vocab, config = load(config)
        self.vocab_size = max(vocab.values(), default=-1) + 1
        ordinary = ordinary_pieces(config["model"])
        named = {name: number for name, number in vocab.items() if name not in ordinary}
        extra = [token["content"] for token in config["added_tokens"] if token["special"] and token["content"] in named]
        self.owned_tokens = owned_tokens(_fill_roles(named, extra, special), {name: vocab[name] for name in extra})
        owned = set(self.owned_tokens.values())
        self._names = {number: token for token, number in vocab.items() if number in owned}
        sealed = seal(config, self._names.values())
        if sealed is not config:
            self._tokenizer, _, _ = load(sealed)
            config = sealed
        self._config, self._vocab = config, vocab
        decoder = config.get("decoder")
        self._pieces = None if _is_byte_level(decoder) else piece_tables(decoder, self._tokens)
        self._prefix_space = prefix_space(config)  # None: not byte-level
        self._encoded = 0  # characters

    @cached_property
    def fingerprint(self) -> str:
        return fingerprint_of(self._config)

    @cached_property
    def _engine(self) -> GigatokenEngine | None:
        """Another engine with the same ids; None for Hugging Face's."""
        return None if self._prefix_space is None else gigatoken_engine(self._config, self._tokenizer)

    @property
    def engine(self) -> str:
        return "gigatoken" if self._engine else "huggingface"

    @cached_property
    def _tokens(self) -> list[str]:
        """Tokens by id; empty strings in gaps."""
        tokens = [""] * self.vocab_size
        for token, number in self._vocab.items():
            tokens[number] = token
        return tokens

    @cached_property
    def _token_bytes(self) -> list[bytes]:
        return list(map(token_bytes, self._tokens))

    @cached_property
    def _byte_lengths(self) -> np.ndarray:
        """Bytes of each id, ``(vocab,)`` int64."""
        return np.fromiter(map(len, self._token_bytes), np.int64, self.vocab_size)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._data, self._special_names())

    def encode(self, texts: Sequence[str]) -> Ragged:
        self._encoded += sum(map(len, texts))
        if self._encoded <= _FIRST or not self._engine:
            with _explain_errors():
                encodings = self._tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)
            return Ragged.from_rows([encoding.ids for encoding in encodings], np.int32)
        return Ragged.from_rows([self._encode_one(text) for text in texts], np.int32)

    def encode_with_starts(self, texts: Sequence[str]) -> tuple[Ragged, Ragged]:
        if self._prefix_space is None:
            with _explain_errors():
                encodings = self._tokenizer.encode_batch(list(texts), add_special_tokens=False)
            ids = Ragged.from_rows([encoding.ids for encoding in encodings], np.int32)
            starts = [
                byte_offsets(text, np.array([start for start, _ in encoding.offsets], np.int64))
                for text, encoding in zip(texts, encodings, strict=True)
            ]
            return ids, Ragged.from_rows(starts, np.int64)
        ids = self.encode(texts)
        lengths = self._byte_lengths[ids.values]
        ends = np.cumsum(lengths)  # (tokens,) bytes up to the end of each, over all texts
        starts = ends - lengths
        first = np.append(0, ends)[ids.offsets[:-1]]  # (texts,) first byte of each text
        starts -= np.repeat(first, ids.lengths)
        if self._prefix_space:
            shift = [not text.startswith(" ") for text in texts]
            starts = (starts - np.repeat(np.array(shift, np.int64), ids.lengths)).clip(0)
        return ids, Ragged(starts, ids.offsets)

    def _encode_one(self, text: str) -> np.ndarray:
        assert self._engine
        try:
            return self._engine.encode(text)
        except ValueError:
            return np.array(self._tokenizer.encode(text, add_special_tokens=False).ids, np.int32)

    def decode(self, ids: np.ndarray | Sequence[int]) -> str:
        return self.decode_with_offsets(ids)[0]

    def decode_with_offsets(self, ids: np.ndarray | Sequence[int]) -> tuple[str, np.ndarray]:
        ids = check_ids(ids, self.vocab_size)
        if self._pieces:
            return self._pieces.decode(ids)
        lengths = self._byte_lengths[ids]
        return decode_utf8(b"".join(map(self._token_bytes.__getitem__, ids.tolist())), np.cumsum(lengths) - lengths)

    def serialized(self) -> dict[str, bytes]:
        names = json.dumps(self._special_names(), indent=1, sort_keys=True).encode()
        return {"tokenizer.json": self._data, "special_tokens_map.json": names}

    def save(self, folder: str) -> None:
        write_files(folder, self.serialized())

    def _special_names(self) -> dict[str, str]:
        """Return ``special_roles`` of the owned tokens."""
        owned = [(fields[0], self.owned_tokens.get(role)) for role, (fields, _) in _ROLES.items()]
        return {field: self._names[number] for field, number in owned if number is not None}


def special_roles(*configs: Mapping[str, Any]) -> dict[str, str]:
    """Map fields of special_tokens_map.json or tokenizer_config.json to tokens; earlier ``configs`` take precedence."""
    roles: dict[str, str] = {}
    for fields, _ in _ROLES.values():
        for field in fields:
            for config in configs:
                token = config.get(field)
                token = token.get("content") if isinstance(token, dict) else token
                if isinstance(token, str):
                    roles.setdefault(field, token)
    return roles


def check_ids(ids: np.ndarray | Sequence[int], vocab_size: int) -> np.ndarray:
    """Convert ids to ``(n,)`` int64 and check that they are in the vocabulary."""
    ids = np.asarray(ids, np.int64)
    outside = (ids < 0) | (ids >= vocab_size)
    if outside.any():
        raise FarspanError(
            f"token id {ids[outside][0]} at position {np.flatnonzero(outside)[0]} is outside the tokenizer's "
            f"vocabulary 0..{vocab_size - 1}; special tokens of a mask set must be removed before decoding"
        )
    return ids


def write_files(folder: str, files: Mapping[str, bytes]) -> None:
    """Write ``files`` (name -> content) into a folder, creating it if necessary."""
    os.makedirs(folder, exist_ok=True)
    for name, data in files.items():
        with open(os.path.join(folder, name), "wb") as file:
            file.write(data)


@contextmanager
def _explain_errors() -> Iterator[None]:
    """Explain an error of the tokenizers library about a text."""
    try:
        yield
    except TypeError:  # no text
        raise
    except Exception as error:  # the library raises bare Exception
        raise FarspanError(
            f"tokenizer.json: it cannot encode every text: {one_line(error)}; give its model an unknown token"
        ) from error


def owned_tokens(roles: Mapping[str, int], special: Mapping[str, int]) -> dict[str, int]:
    """Merge role -> id with text -> id of the ``special`` tokens that have no role.

    Text never yields a special token, so rendering can insert it where it needs a token of the same spelling. An
    ordinary piece of that spelling is text.
    """
    others = {name: number for name, number in special.items() if number not in roles.values()}
    return {**roles, **{name: number for name, number in others.items() if name not in roles}}


def _fill_roles(vocab: Mapping[str, int], extra: Sequence[str], special: Mapping[str, str] | None) -> dict[str, int]:
    roles = {}
    for role, (fields, usual_names) in _ROLES.items():
        names = usual_names if special is None else [special.get(field, "") for field in fields]
        # An undeclared mask token must be a special token, because any vocabulary may contain a piece "<mask>".
        known = extra if special is None and role == "<mask>" else vocab
        present = [vocab[name] for name in names if name in known]
        if present:
            roles[role] = present[0]
    return roles


def _is_byte_level(decoder: dict[str, Any] | None) -> bool:
    steps = (decoder or {}).get("decoders", [decoder])
    return [step and step["type"] for step in steps] == ["ByteLevel"]
