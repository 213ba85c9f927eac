"""Special tokens: ids that rendering inserts and a corpus never stores.

A token that the tokenizer has keeps the tokenizer's id; others are appended to its vocabulary. Published models have
such tokens under names of their own (T5's ``<extra_id_0>``, PEGASUS's ``<mask_1>``). If a tokenizer declares these as
special tokens, their ids are used for the same role, so training continues from their embeddings.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import count, takewhile
from typing import Literal

import numpy as np

from corpora.errors import FarspanError

PAD, BEGIN, END, UNKNOWN = "<pad>", "<bos>", "<eos>", "<unk>"
DOCUMENT_SEPARATOR, DOCUMENT_BEGIN, DOCUMENT_END = "<doc-sep>", "<doc-s>", "</doc-s>"
MASK, SENTENCE_MASK = "<mask>", "<sent-mask>"
_SENTINEL = "<sentinel-"
_PUBLISHED_NAMES = {
    MASK: ("<mask_2>",),  # PEGASUS: stands for a masked word
    SENTENCE_MASK: ("<mask_1>", "<sent_mask>"),  # PEGASUS; BART-LS's variant of it
}
_PUBLISHED_SENTINELS = ("<extra_id_{}>", "<sentinel_{}>")  # T5, LongT5 and similar models; BART-LS


def sentinel(index: int) -> str:
    """Return the name of sentinel ``index``, from 0."""
    return f"{_SENTINEL}{index}>"


def is_sentinel(name: str) -> bool:
    """Return True for the name of a sentinel."""
    return name.startswith(_SENTINEL)


def find_owned_id(owned: Mapping[str, int], name: str) -> int | None:
    """Return the tokenizer's id for the special token ``name``, by our name or a published one; None if it has none."""
    return next((owned[text] for text in (name, *_PUBLISHED_NAMES.get(name, ())) if text in owned), None)


def find_owned_sentinels(owned: Mapping[str, int]) -> list[int]:
    """Return the tokenizer's ids for sentinel 0, 1, ..., up to the first gap."""
    for spelling in (f"{_SENTINEL}{{}}>", *_PUBLISHED_SENTINELS):
        names = takewhile(owned.__contains__, map(spelling.format, count()))
        if numbers := [owned[name] for name in names]:
            return numbers
    return []


def table_fault(table: Mapping[str, int], vocab_size: int, owned: Mapping[str, int]) -> str | None:
    """Describe the first fault of a mask set's table of special tokens, name -> id; None if there is none.

    An id in the tokenizer's range must be that of its own token of this name, as in ``owned``; other ids follow that
    range without a gap. Two names may share an id only if the tokenizer gives both roles to one token.
    """
    if lacking := [name for name in (PAD, BEGIN, END) if name not in table]:
        return f"lacks {', '.join(lacking)}"
    sentinels = find_owned_sentinels(owned)
    for name, number in table.items():
        expected = find_owned_id(owned, name)
        if is_sentinel(name):
            index = name.removeprefix(_SENTINEL).removesuffix(">")
            if name != sentinel(int(index) if index.isdecimal() else -1) or int(index) >= sum(map(is_sentinel, table)):
                return f"numbers sentinels with a gap: {name}"
            expected = sentinels[int(index)] if int(index) < len(sentinels) else None
        if number < vocab_size and number != expected:
            return f"gives {name} id {number}, which is that of another token of the tokenizer"
        if number >= vocab_size and name in (PAD, BEGIN, END) and expected is not None:
            return f"gives {name} id {number}, though the tokenizer's own is {expected}"
    appended = sorted(number for number in table.values() if number >= vocab_size)
    if appended != list(range(vocab_size, vocab_size + len(appended))):
        return f"does not number its own tokens {vocab_size}, {vocab_size + 1}, ... without gaps and repetitions"
    return None


@dataclass(frozen=True)
class SpecialTokens:
    """The table name -> id of special tokens, as a mask set's manifest records it.

    Attributes:
        ids: every special token that rendering may insert. Those that the tokenizer has keep its ids; all others are at
            or above its ``vocab_size``.
        vocab_size: number of embedding rows needed: one more than the largest id of tokenizer and table.
    """

    ids: Mapping[str, int]
    vocab_size: int

    def __getitem__(self, name: str) -> int:
        return self.ids[name]

    @cached_property
    def sentinels(self) -> np.ndarray:
        """Ids of sentinel 0, 1, ..., ``(count,)`` int32, read-only."""
        names = map(sentinel, range(sum(map(is_sentinel, self.ids))))
        numbers = np.array([self.ids[name] for name in names], np.int32)
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
        """Number the special tokens above a tokenizer with ``vocab_size`` ids.

        Args:
            owned: roles and special tokens that the tokenizer has, name -> id, e.g. ``{"<eos>": 1}``.
            names: further special tokens; ``<pad>``, ``<bos>`` and ``<eos>`` are always in the table.
            sentinels: number of sentinels. The tokenizer's own come first, in their published order (T5's vocabulary
                has 100); the rest are appended.
            order: order of appended sentinels: ascending as in BART-LS, or descending from the last id as in T5.
        """
        roles = dict.fromkeys([PAD, BEGIN, END, *names])
        ids = {name: number for name in roles if (number := find_owned_id(owned, name)) is not None}
        following = count(vocab_size)
        for name in roles:
            if name not in ids:
                ids[name] = next(following)
        numbers = find_owned_sentinels(owned)[:sentinels]
        first = next(following)
        appended = range(first, first + sentinels - len(numbers))
        numbers += appended if order == "ascending" else reversed(appended)
        ids |= {sentinel(index): number for index, number in enumerate(numbers)}
        return cls(ids, appended.stop)

    @classmethod
    def merge(cls, tables: Sequence[SpecialTokens], tokenizer_size: int) -> SpecialTokens:
        """Merge tables: tokens of the first keep their ids, and tokens that only later tables have follow them.

        ``tokenizer_size``: one more than the tokenizer's largest id; lower ids are its own and do not change.
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
