"""Pairs packed into rows: several short examples share a row of the encoder and one of the decoder.

Source: Guo et al. 2022, arXiv:2112.07916, section 3.1, with the packing of T5's data pipeline. Rows are made once from
the lengths of all examples, best fit first, and are the same in every epoch; a sample of training is a row.
"""

from __future__ import annotations

import json
from hashlib import sha256

import numpy as np

from corpora.errors import FarspanError
from corpora.keyed import make_key
from corpora.packing.best_fit import best_fit_parts
from corpora.storage.ragged import Ragged
from objectives.api.examples import Examples
from objectives.api.special_tokens import PAD, SpecialTokens
from trainer.data.config import DataConfig, Source
from trainer.data.order import permute
from trainer.data.paired import PairedSource

_BUCKET = 1 << 13
"""Examples that are packed together: among all of a large set, those of a row would be of nearly equal length."""


class PackedPairs:
    """Rows of ``pairs`` as a source; ``members``, n rows of int64, are the examples of each row."""

    def __init__(self, pairs: PairedSource, data: DataConfig, members: Ragged | None = None) -> None:
        self.pairs, self._data = pairs, data
        self.special = pairs.special
        self.tokenizer_fingerprint, self.tokenizer_size = pairs.tokenizer_fingerprint, pairs.tokenizer_size
        self.members = _pack(pairs, data) if members is None else members
        facts = [pairs.fingerprint, "packed", data.source_length, data.target_length, data.source_multiple]
        self.fingerprint = sha256(json.dumps(facts).encode()).hexdigest()

    def __len__(self) -> int:
        return len(self.members)

    @property
    def most(self) -> int:
        """Largest number of examples in a row."""
        return int(self.members.lengths.max())

    def examples(self, indices: np.ndarray, epochs: np.ndarray | None = None) -> Examples:
        """Render the rows at ``(n,)`` int64 ``indices``, as ``PairedSource.examples`` does."""
        members = self.members.take(indices)
        each = None if epochs is None else np.repeat(epochs, members.lengths)
        examples = self.pairs.examples(members.values, each)
        return join(examples, members.lengths, self._data.source_multiple, self.special[PAD])

    def with_special(self, special: SpecialTokens) -> PackedPairs:
        """The same rows with the ids of another table."""
        return PackedPairs(self.pairs.with_special(special), self._data, self.members)

    def origin(self, index: int) -> str:
        """Describe the first pair of row ``index``, for messages."""
        own = self.members.take(np.array([index])).values
        others = f" and {len(own) - 1} more in its row" if len(own) > 1 else ""
        return f"{self.pairs.origin(int(own[0]))}{others}"

    def padding(self, rows: int) -> np.ndarray:
        """Shares of padding of source and target, ``(2, 2)``: in these rows, and in batches of ``rows`` pairs."""
        lengths, limits = self.pairs.lengths(), np.array([self._data.source_length, self._data.target_length])
        places = permute(np.arange(lengths.shape[1]), lengths.shape[1], make_key(0, "padding"))
        firsts = np.arange(0, len(places), rows)
        widths = np.maximum.reduceat(lengths[:, places], firsts, axis=1) * np.diff(firsts, append=len(places))
        return 1 - lengths.sum(1) / np.stack([limits * len(self), widths.sum(1)])


def unpacked(source: Source) -> Source:
    """Return the pairs of packed rows, or any other source itself."""
    return source.pairs if isinstance(source, PackedPairs) else source


def _pack(pairs: PairedSource, data: DataConfig) -> Ragged:
    """Divide all examples into rows: by the source, or by the target where it takes the larger part of its row."""
    if pairs.cached:
        raise FarspanError(
            f"packing needs the lengths of all pairs, but {pairs.described} is read from a remote store step by "
            "step; unset loading.cache_gib, or set data.packing=false"
        )
    source, target = pairs.lengths()
    unit, size = data.source_multiple, data.source_length
    parts = np.maximum(-(-source // unit) * unit, -(-target * size // data.target_length))
    order = permute(np.arange(len(parts)), len(parts), make_key(0, "packing"))
    rows = []
    for begin in range(0, len(order), _BUCKET):
        bucket = order[begin : begin + _BUCKET]
        row, member, _, _ = best_fit_parts(parts[bucket], size, 0)
        rows.append(Ragged.from_lengths(bucket[member], np.bincount(row)))
    return Ragged.concatenate(rows)


class _Places:
    """Where the first ``lengths``, ``(E,)``, columns of E examples lie in the rows that they are joined to.

    ``rows`` and ``firsts``, ``(E,)``, are the row of each example and the first example of that row; examples begin at
    multiples of ``unit``.
    """

    def __init__(self, lengths: np.ndarray, rows: np.ndarray, firsts: np.ndarray, unit: int = 1) -> None:
        sizes = -(-lengths.astype(np.int64) // unit) * unit
        begins = np.cumsum(sizes) - sizes
        begins -= begins[firsts]
        self.sizes = np.zeros(rows[-1] + 1, np.int32)
        np.maximum.at(self.sizes, rows, (begins + lengths).astype(np.int32))
        self._own = np.nonzero(np.arange(lengths.max()) < lengths[:, None])
        self._at = rows[self._own[0]], begins[self._own[0]] + self._own[1]

    def move(self, column: np.ndarray, filler: int) -> np.ndarray:
        """Join the rows of a ``(E, W)`` column."""
        out = np.full((len(self.sizes), self.sizes.max()), filler, column.dtype)
        out[self._at] = column[self._own]
        return out


def join(examples: Examples, counts: np.ndarray, unit: int, pad: int) -> Examples:
    """Join consecutive examples to rows, ``(n,)`` ``counts`` to each; sources begin at multiples of ``unit``."""
    rows = np.repeat(np.arange(len(counts)), counts)
    firsts = (np.cumsum(counts) - counts)[rows]
    numbers = (np.arange(len(rows)) - firsts).astype(np.int32)[:, None]
    source = _Places(examples.source_lengths, rows, firsts, unit)
    target = _Places(examples.target_lengths, rows, firsts)
    chosen, prompts = examples.global_positions, examples.prompt_lengths
    columns = np.arange(examples.target_ids.shape[1])
    return Examples(
        sequence_ids=examples.sequence_ids[np.unique(firsts)],
        source_ids=source.move(examples.source_ids, pad),
        source_lengths=source.sizes,
        target_ids=target.move(examples.target_ids, pad),
        target_lengths=target.sizes,
        segment_ids=source.move(np.broadcast_to(numbers, examples.source_ids.shape), -1),
        global_positions=None if chosen is None else source.move(chosen, 0),
        target_segment_ids=target.move(np.broadcast_to(numbers, examples.target_ids.shape), -1),
        prompt_mask=None if prompts is None else target.move(columns < prompts[:, None], 0),
    )
