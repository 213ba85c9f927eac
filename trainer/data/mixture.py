"""A mixture: several sources of examples as one."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import NamedTuple

import numpy as np

from corpora.errors import FarspanError
from corpora.storage.sharded_rows import ShardedRows
from objectives.api.examples import Examples
from objectives.api.special_tokens import PAD, SpecialTokens
from trainer.data.config import ShardedSource, Source
from trainer.data.order import Share, sample_places


@dataclass(frozen=True)
class Part:
    """A source in a mixture."""

    name: str  # in metrics and errors
    source: Source
    weight: float = 1.0  # proportion of the samples, relative to the weights of the other parts
    shuffle_shards: int = 0  # shards whose sequences are shuffled together; 0 for all of the source

    @property
    def share(self) -> Share:
        """The properties that the order depends on."""
        if not self.shuffle_shards:
            return Share(self.name, len(self.source), self.weight)
        if not isinstance(self.source, ShardedSource):
            raise FarspanError(
                f"data.shuffle_shards is {self.shuffle_shards}, but source {self.name!r} has no shards; set it to 0"
            )
        return Share(self.name, len(self.source), self.weight, self.source.shard_rows, self.shuffle_shards)


class Sequences(NamedTuple):
    """Indices of sequences in a mixture, and the number of times each was seen before, ``(n,)`` int64 each."""

    indices: np.ndarray
    epochs: np.ndarray


class Mixture:
    """A source whose sequences are those of its parts, concatenated.

    All parts have the same tokenizer, and render with the special tokens of all. The order depends on ``shares`` alone.
    """

    def __init__(self, parts: Sequence[Part], special: SpecialTokens | None = None) -> None:
        for part in parts:
            if not len(part.source):
                raise FarspanError(f"source {part.name!r} of the data holds no sequence; check its corpus")
            _check_tokenizer(parts[0], part)
        first = parts[0].source
        self.tokenizer_fingerprint, self.tokenizer_size = first.tokenizer_fingerprint, first.tokenizer_size
        if special is None:
            special = SpecialTokens.merge([part.source.special for part in parts], self.tokenizer_size)
        self.special = special
        self.parts = tuple(replace(part, source=_rendering_with(special, part.source)) for part in parts)
        self.shares = tuple(part.share for part in self.parts)
        self._starts = np.cumsum([0, *(share.size for share in self.shares)])
        facts = [
            [part.name, part.weight, part.source.fingerprint, *([part.shuffle_shards] if part.shuffle_shards else [])]
            for part in self.parts
        ]
        self.fingerprint = sha256(json.dumps(facts).encode()).hexdigest()
        _check_kinds(self.parts)

    @classmethod
    def of(cls, source: Source) -> Mixture:
        """Return the source itself if it is a mixture, else a mixture of this source alone."""
        return source if isinstance(source, Mixture) else cls([Part("data", source)])

    def __len__(self) -> int:
        return int(self._starts[-1])

    def with_special(self, special: SpecialTokens) -> Mixture:
        """The same examples with the ids of another table."""
        return Mixture(self.parts, special)

    def sequences(self, samples: np.ndarray, seed: int) -> Sequences:
        """The sequence and the epoch of each of the ``(n,)`` samples, counted from 0 over the run."""
        places = sample_places(samples, self.shares, seed)
        return Sequences(self._starts[places.sources] + places.indices, places.epochs)

    def examples(self, indices: np.ndarray, epochs: np.ndarray | None = None) -> Examples:
        """Render the sequences at ``(n,)`` int64 ``indices``, in that order, each as in its epoch."""
        if epochs is None:
            epochs = np.zeros(len(indices), np.int64)
        if len(self.parts) == 1:
            return self.parts[0].source.examples(indices, epochs)
        numbers, rows = self._split(indices)
        chosen = {number: numbers == number for number in np.unique(numbers).tolist()}
        rendered = [self.parts[number].source.examples(rows[own], epochs[own]) for number, own in chosen.items()]
        together = Examples.concatenate(rendered, self.special[PAD])
        # together has the rows part by part; place[i] is the index of row i of the batch in it
        place = np.empty(len(indices), np.int64)
        place[np.argsort(numbers, kind="stable")] = np.arange(len(indices))
        return together.take(place)

    def shards(self, samples: np.ndarray, seed: int) -> list[tuple[ShardedRows, int]]:
        """List artefact and number of each remote shard that the ``(n,)`` samples are read from, once."""
        if not self.cached:
            return []
        places, shards = sample_places(samples, self.shares, seed), []
        for number in np.unique(places.sources).tolist():
            source, own = self.parts[number].source, places.sources == number
            if isinstance(source, ShardedSource):
                shards += list(source.shards(places.indices[own], places.epochs[own]))
        return shards

    @property
    def cached(self) -> list[ShardedRows]:
        """The artefacts whose shards are fetched from a remote store while they are read."""
        return [rows for part in self.parts if isinstance(part.source, ShardedSource) for rows in part.source.cached]

    def origins(self, indices: np.ndarray) -> list[str]:
        """Part, file and row of each of the ``(n,)`` sequences, for messages."""
        origins = []
        for number, row in zip(*(column.tolist() for column in self._split(indices)), strict=True):
            source = self.parts[number].source
            place = source.origin(row) if hasattr(source, "origin") else f"sequence {row}"
            origins.append(f"{self.parts[number].name}: {place}")
        return origins

    def _split(self, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """``(n,)`` numbers of parts, and ``(n,)`` rows in them."""
        indices = np.asarray(indices, np.int64)
        numbers = np.searchsorted(self._starts, indices, side="right") - 1
        return numbers, indices - self._starts[numbers]


def one_vocabulary(mixtures: Sequence[Mixture]) -> list[Mixture]:
    """Give all mixtures of a curriculum the special tokens of all."""
    first = mixtures[0]
    for mixture in mixtures[1:]:
        _check_tokenizer(first.parts[0], mixture.parts[0])
    special = SpecialTokens.merge([mixture.special for mixture in mixtures], first.tokenizer_size)
    return [mixture if mixture.special == special else mixture.with_special(special) for mixture in mixtures]


def _rendering_with(special: SpecialTokens, source: Source) -> Source:
    return source if source.special == special else source.with_special(special)


def _check_tokenizer(one: Part, other: Part) -> None:
    known = one.source.tokenizer_fingerprint, other.source.tokenizer_fingerprint
    if known[0] != known[1]:
        raise FarspanError(
            f"source {one.name!r} holds ids of the tokenizer with fingerprint {known[0]}, source {other.name!r} of "
            f"{known[1]}; make both corpora with one tokenizer"
        )


def _check_kinds(parts: Sequence[Part]) -> None:
    """Check that all parts have targets, or all have labels in place; a batch cannot have both."""
    if len(parts) == 1:
        return
    kinds: dict[bool, str] = {}
    for part in parts:
        kinds.setdefault(part.source.examples(np.zeros(1, np.int64)).labels is None, part.name)
    if len(kinds) > 1:
        raise FarspanError(
            f"source {kinds[True]!r} has target texts, source {kinds[False]!r} labels at masked tokens; train "
            "a model on one kind of objective"
        )
