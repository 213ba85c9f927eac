"""The vocabulary of a model, and the initialisation of rows for new ids."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from corpora.errors import FarspanError
from corpora.keyed import make_key
from objectives.api.special_tokens import END, MASK, SpecialTokens, is_sentinel

TABLES = ("tokens.weight", "output.weight", "bias")
"""Tensors with a row for each id."""
NOISE = 0.1
"""Standard deviation of the noise added to new rows, relative to that of the row they are copied from."""


@dataclass(frozen=True)
class Vocabulary:
    """The meaning of a model's ids."""

    special: SpecialTokens  # with the number of rows of the tables
    tokenizer_size: int  # number of ids of the tokenizer; special tokens and unused rows follow them
    tokenizer_fingerprint: str | None = None
    decoder_start: str = END  # the special token that a decoder's input begins with
    frame: tuple[str, ...] | None = None  # those of <bos> and <eos> that surrounded sources in training, if known

    @classmethod
    def of(
        cls,
        special: SpecialTokens,
        tokenizer_fingerprint: str | None,
        decoder_start: str = END,
        frame: tuple[str, ...] | None = None,
    ) -> Vocabulary:
        """Make a vocabulary in which only special tokens follow the tokenizer's ids.

        Special tokens at the end of the tokenizer's ids (T5's sentinels) do not count as the tokenizer's.
        """
        size, ids = special.vocab_size, set(special.ids.values())
        while size - 1 in ids:
            size -= 1
        return cls(special, size, tokenizer_fingerprint, decoder_start, frame)

    @property
    def size(self) -> int:
        """Number of rows of the tables."""
        return self.special.vocab_size

    def to_json(self) -> dict[str, Any]:
        """Convert to a manifest's entry."""
        return {
            "tokenizer_fingerprint": self.tokenizer_fingerprint,
            "tokenizer_size": self.tokenizer_size,
            "special_tokens": dict(self.special.ids),
            "size": self.size,
            "decoder_start": self.decoder_start,
            "frame": None if self.frame is None else list(self.frame),
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Vocabulary:
        """Read a manifest's entry, as ``to_json`` makes it."""
        special = SpecialTokens(dict(values["special_tokens"]), values["size"])
        frame = None if values["frame"] is None else tuple(values["frame"])
        return cls(special, values["tokenizer_size"], values["tokenizer_fingerprint"], values["decoder_start"], frame)


def change_vocabulary(state: Mapping[str, Tensor], old: Vocabulary, new: Vocabulary) -> dict[str, Tensor]:
    """Return a state whose tables have a row for each id of ``new``.

    Tokens keep their rows; special tokens are matched by name. New rows start as the row of the mask token (or the mean
    row, if there is none) plus noise that depends only on the token's name. New sentinels that extend the tokenizer's
    own (T5's) start as the mean row of those.
    """
    if None not in (known := (old.tokenizer_fingerprint, new.tokenizer_fingerprint)) and known[0] != known[1]:
        raise FarspanError(
            f"the model knows the ids of tokenizer {_short(known[0])}, the data those of {_short(known[1])}; make "
            "the corpus with the model's tokenizer"
        )
    names = {number: name for name, number in new.special.ids.items()}
    rows, fresh = [], {}  # old row of each new id; key of the noise of each id without one
    for number in range(new.size):
        name = names.get(number)
        if name is not None and name in old.special.ids:
            rows.append(old.special.ids[name])
        elif number < min(old.tokenizer_size, old.size) or (name is None and number < old.size):
            rows.append(number)
        else:
            fresh[number] = name or f"row {number}"
            rows.append(0)
    learned = [rows[number] for number in new.special.sentinels.tolist() if number not in fresh]
    changed = dict(state)
    for table in set(TABLES) & state.keys():
        changed[table] = _with_fresh_rows(state[table], torch.tensor(rows), fresh, old.special.ids.get(MASK), learned)
    return changed


def _with_fresh_rows(
    table: Tensor, rows: Tensor, fresh: Mapping[int, str], mask: int | None, sentinels: list[int]
) -> Tensor:
    """Extend a table, ``(V, d)`` or ``(V,)``, to the new ids."""
    default = table.mean(0) if mask is None else table[mask]
    sentinel = table[sentinels].mean(0) if sentinels else default
    taken = table[rows]
    for number, name in fresh.items():
        start = sentinel if is_sentinel(name) else default
        taken[number] = start
        if table.dim() > 1:
            key = make_key(0, "token row", {"name": name})
            generator = torch.Generator().manual_seed(int.from_bytes(key[:8], "little", signed=True))
            taken[number] += NOISE * start.std() * torch.randn(start.shape, generator=generator)
    return taken


def _short(fingerprint: str | None) -> str:
    return (fingerprint or "none")[:12]
