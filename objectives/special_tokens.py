"""Special tokens: ids appended to the tokenizer's vocabulary when a batch is rendered, never stored in a corpus."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from corpora.errors import FarspanError

PAD, BEGIN, END, UNKNOWN = "<pad>", "<bos>", "<eos>", "<unk>"
DOCUMENT_SEPARATOR, DOCUMENT_BEGIN, DOCUMENT_END = "<doc-sep>", "<doc-s>", "</doc-s>"
MASK, SENTENCE_MASK = "<mask>", "<sent-mask>"
_SENTINEL = "<sentinel-"


def sentinel(index: int) -> str:
    return f"{_SENTINEL}{index}>"


def is_sentinel(name: str) -> bool:
    return name.startswith(_SENTINEL)


@dataclass(frozen=True)
class SpecialTokens:
    """Name -> id, as a mask set's manifest records it.

    Attributes:
        ids: every special token that rendering may emit; ids the tokenizer owns (``<pad>``, ``<bos>``, ``<eos>``) keep
            the tokenizer's id, all others lie at and above the tokenizer's ``vocab_size``.
        vocab_size: rows an embedding needs: one more than the largest id of tokenizer and table.
    """

    ids: Mapping[str, int]
    vocab_size: int

    def __getitem__(self, name: str) -> int:
        return self.ids[name]

    @cached_property
    def sentinels(self) -> np.ndarray:
        """``(count,)`` int32, not to be written: the id of sentinel 0, 1, ..."""
        count = sum(map(is_sentinel, self.ids))
        numbers = np.array([self.ids[sentinel(index)] for index in range(count)], np.int32)
        numbers.flags.writeable = False
        return numbers

    @classmethod
    def append(
        cls,
        vocab_size: int,
        owned: Mapping[str, int],
        names: Sequence[str] = (),
        sentinels: int = 0,
        order: Literal["ascending", "descending"] = "ascending",
    ) -> SpecialTokens:
        """Number the tokens that a tokenizer with ``vocab_size`` ids does not own.

        Args:
            vocab_size: one more than the tokenizer's largest id.
            owned: the roles that the tokenizer fills itself, e.g. ``{"<eos>": 1}``.
            names: further special tokens; ``<pad>``, ``<bos>`` and ``<eos>`` are always in the table.
            sentinels: how many sentinels.
            order: BART-LS numbers sentinels upwards, T5 downwards from the last id.
        """
        roles = [PAD, BEGIN, END, *names]
        ids = {name: owned[name] for name in roles if name in owned}
        for name in roles:
            ids.setdefault(name, vocab_size + sum(value >= vocab_size for value in ids.values()))
        first = max([vocab_size - 1, *ids.values()]) + 1
        numbers = range(first, first + sentinels)
        ids |= {sentinel(i): n for i, n in enumerate(numbers if order == "ascending" else reversed(numbers))}
        return cls(ids, first + sentinels)

    @classmethod
    def merge(cls, tables: Sequence[SpecialTokens], tokenizer_size: int) -> SpecialTokens:
        """One table for what several tables render: the tokens of the first keep their ids, those that only later ones
        have are numbered behind them.

        Args:
            tables: all over the ids of one tokenizer; at least one.
            tokenizer_size: one more than the tokenizer's largest id; lower ids are its own and stay.

        Raises:
            FarspanError: two tables that give one of the tokenizer's ids to a token in two ways.
        """
        ids, size = dict(tables[0].ids), tables[0].vocab_size
        for table in tables[1:]:
            for name, number in table.ids.items():
                if number < tokenizer_size and ids.setdefault(name, number) != number:
                    raise FarspanError(
                        f"special token {name} has id {ids[name]} for one objective, the tokenizer's {number} for "
                        "another; make both mask sets from corpora of one tokenizer"
                    )
                if name not in ids:
                    ids[name], size = size, size + 1
        return cls(ids, size)
