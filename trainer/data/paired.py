"""A source of examples for fine-tuning: pairs that a task renders."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import sha256
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from corpora.errors import FarspanError
from corpora.keyed import id_keys, make_key
from corpora.schemas.pairs import PairLengths, PairSet
from corpora.storage.ragged import Ragged
from corpora.storage.sharded_rows import ShardedRows
from corpora.tokenizers.load import load_tokenizer_of
from objectives.api.examples import Examples
from objectives.api.protocol import Tools, equip
from objectives.api.special_tokens import SpecialTokens
from objectives.tasks.protocol import (
    TASKS,
    Lengths,
    PairFacts,
    Rendered,
    Task,
    group_questions,
    load_task,
    sample_targets,
)
from trainer.data.config import TaskConfig
from trainer.data.masked_corpus import Longest, checksums, require_tokens

_BLOCK = 4096  # samples whose lengths are computed at once


def equip_task(config: TaskConfig, pairs: str) -> Task:
    """Load a task with the tools that it needs to render the pairs in the folder ``pairs``."""
    name, preset = TASKS.resolve(config.name, config.preset)
    return equip(load_task(name, preset, config.options), Tools(load_tokenizer_of(pairs)))


@dataclass(frozen=True)
class Cuts:
    """Number of samples, and of samples whose query, documents or target a task cuts."""

    samples: int = 0
    query: int = 0
    documents: int = 0
    target: int = 0
    tokens: int = 0  # document tokens of all samples, and those that are cut
    lost: int = 0

    def __str__(self) -> str:
        share = 100 * self.lost / max(self.tokens, 1)
        parts = [
            f"{count:,} {name}" + (f" ({share:.1f} % of the document tokens)" if name == "sources" else "")
            for name, count in (("sources", self.documents), ("queries", self.query), ("targets", self.target))
            if count
        ]
        return f"of {self.samples:,} samples, " + ", ".join(parts) + " are cut"


class FewExamples(NamedTuple):
    """A draw of few pairs, as for PRIMERA's runs with 10 and 100 examples."""

    number: int
    seed: int

    def draw(self, pairs: PairSet, rows: np.ndarray, split: str) -> np.ndarray:
        """Draw from the pairs at ``(n,)`` int64 ``rows``, keyed by pair id; returns rows in ascending order."""
        if self.number > len(rows):
            raise FarspanError(
                f"{pairs.folder}: examples is {self.number:,}, but split {split!r} has {len(rows):,} pairs with "
                "targets; set fewer"
            )
        names = pairs.values("pair_id", rows)
        order = np.argsort(id_keys(make_key(self.seed, "examples"), names)[:, 0], kind="stable")
        return np.sort(rows[order[: self.number]])


class PairedSource:
    """Pairs of a split and their targets, rendered when a batch is made.

    Sample n is a target of a pair of the split, in stored order: with ``task.samples = "each"`` one sample for each
    target, else one for each pair, or for each group of pairs that the task renders as one example. Pairs without
    targets are left out, and so are pairs that ``few`` does not draw. Attributes are those of ``Source``.
    """

    def __init__(
        self,
        pairs: PairSet,
        split: str,
        task: Task,
        special: SpecialTokens,
        seed: int = 0,
        few: FewExamples | None = None,
    ) -> None:
        self._pairs, self._split, self._seed, self._few = pairs, split, seed, few
        self.task, self.special = task, special
        self.tokenizer_fingerprint: str = pairs.manifest.tokenizer["fingerprint"]
        self.tokenizer_size: int = pairs.manifest.tokenizer["vocab_size"]
        rows = pairs.rows_of(split)
        counts = pairs.target_counts[rows]
        if not counts.any():
            raise FarspanError(
                f"{pairs.folder}: none of the {len(rows):,} pairs in split {split!r} has a target; give a split with "
                "targets"
            )
        self._rows = rows[counts > 0] if few is None else few.draw(pairs, rows[counts > 0], split)
        counts = pairs.target_counts[self._rows]
        questions = getattr(task, "questions", 1)
        # (m + 1,) int64, the first pair of each example or group of examples, which is one pair or several questions
        self._offsets = group_questions(pairs.document_rows.take(self._rows), questions)
        self._groups = Ragged(np.arange(len(self._rows)), self._offsets)
        self._joined = questions > 1
        # (m + 1,) int64, the number of the first sample of each
        each = counts if task.samples == "each" else np.ones(len(self._offsets) - 1, np.int64)
        self._starts = np.cumsum(np.append(0, each))
        identity = [split, task.name, dict(task.options), dict(special.ids), dict(getattr(task, "tools", {}))]
        data = [checksums(pairs), checksums(pairs.documents), self.tokenizer_fingerprint]
        drawn = [seed if task.samples == "sampled" else None, *(few or ())]
        self.fingerprint = sha256(json.dumps([*data, *identity, *drawn]).encode()).hexdigest()

    @classmethod
    def of(cls, pairs: PairSet, split: str, task: Task, seed: int = 0, few: FewExamples | None = None) -> PairedSource:
        """Open the pairs of ``split``, rendered by ``task``, which must have its tools."""
        return cls(pairs, split, task, task.validate(PairFacts.of(pairs.manifest)), seed, few)

    def __len__(self) -> int:
        return int(self._starts[-1])

    def examples(self, indices: np.ndarray, epochs: np.ndarray | None = None) -> Examples:
        """Render the samples at ``(n,)`` int64 ``indices``, in that order.

        Their ``(n,)`` int64 ``epochs``, None for 0, determine the targets of a task that samples them.
        """
        return self.rendered(indices, epochs).examples

    def rendered(self, indices: np.ndarray, epochs: np.ndarray | None = None) -> Rendered:
        """Render examples as ``examples`` does, with the number of tokens that were cut from each."""
        places, targets = self._places(indices)
        members = self._members(places)
        batch = self._pairs.take(self._rows[members.values])
        if self._joined:
            batch, targets = replace(batch, example_offsets=members.offsets), np.zeros(len(batch), np.int64)
        if self.task.samples == "sampled":
            drawn = np.zeros(len(places), np.int64) if epochs is None else epochs
            drawn = np.repeat(drawn, members.lengths)
            targets = sample_targets(self._seed, batch.pair_ids, drawn, np.diff(batch.target_offsets))
        return self.task.render(batch, targets, self.special)

    def with_special(self, special: SpecialTokens) -> PairedSource:
        """The same examples with the ids of another table."""
        require_tokens(self.special, special, f"{self._pairs.folder}: task {self.task.name}", "task")
        return type(self)(self._pairs, self._split, self.task, special, self._seed, self._few)

    def shards(self, indices: np.ndarray, epochs: np.ndarray) -> Iterator[tuple[ShardedRows, int]]:
        """The artefacts and numbers of the remote shards of the samples' pairs and their documents, each once."""
        rows, documents = self._rows[self._members(self._places(indices)[0]).values], self._pairs.documents
        if self._pairs.bounded:
            yield from ((self._pairs, shard) for shard in self._pairs.shards_of(rows))
        if documents.bounded:
            document_rows = self._pairs.document_rows.take(rows).values
            yield from ((documents, shard) for shard in documents.shards_of(document_rows))

    @property
    def cached(self) -> list[ShardedRows]:
        """The artefacts whose shards are fetched from a remote store while they are read."""
        return [rows for rows in (self._pairs, self._pairs.documents) if rows.bounded]

    @cached_property
    def shard_rows(self) -> tuple[int, ...]:
        """Number of samples of each shard of the pairs, without shards that have none."""
        counts = np.diff(self._starts[np.searchsorted(self._rows[self._offsets[:-1]], self._pairs.starts)])
        return tuple(counts[counts > 0].tolist())

    def most_bytes(self, shards: int | None) -> int:
        """The most bytes of remote shards that samples of so many shards of pairs are read from; None for all."""
        documents, sizes = self._pairs.documents, []
        edges = np.searchsorted(self._rows, self._pairs.starts)
        used: set[int] = set()
        for number, (begin, end) in enumerate(pairwise(edges.tolist())):
            if begin == end:
                continue
            size = self._pairs.manifest.shards[number].bytes if self._pairs.bounded else 0
            if documents.bounded:
                needed = documents.shards_of(self._pairs.document_rows.take(self._rows[begin:end]).values)
                size += sum(documents.manifest.shards[shard].bytes for shard in needed)
                used |= {*needed}
            sizes.append(size)
        everything = sum(shard.bytes for shard in self._pairs.manifest.shards) if self._pairs.bounded else 0
        everything += sum(documents.manifest.shards[shard].bytes for shard in used)
        return everything if shards is None else min(everything, sum(sorted(sizes, reverse=True)[:shards]))

    @property
    def described(self) -> str:
        """A name of the source, for messages."""
        of = f"{self._few.number} pairs of " if self._few else ""
        return f"task {self.task.name} on {of}split {self._split} of {self._pairs.folder}"

    def pair_of(self, index: int) -> tuple[PairSet, int]:
        """Return the pairs, and the row of the pair, the first of several, that sample ``index`` renders."""
        (place,), _ = self._places(np.array([index]))
        return self._pairs, int(self._rows[self._offsets[place]])

    def origin(self, index: int) -> str:
        """Describe sample ``index`` by shard, row, pair id and target, for messages."""
        _, (target,) = self._places(np.array([index]))
        _, row = self.pair_of(index)
        shard = int(np.searchsorted(self._pairs.starts, row, side="right")) - 1
        (name,) = self._pairs.table([row]).column("pair_id").to_pylist()
        said = "" if self.task.samples == "sampled" else f", target {target}"
        return f"{self._pairs.path(shard)} row {row - self._pairs.starts[shard]} (pair {name}{said})"

    def longest(self, rows: int | None = None) -> Longest | None:
        """Maximum lengths of all samples, over all targets that may be sampled; None if the task does not say.

        Reads the lengths of queries, documents and targets, but none of their tokens.
        """
        longest = Longest(0, 0, 0, 0)
        for begin, lengths, _ in self._lengths(rows):
            longest = longest.join(begin, lengths.source, lengths.target)
        return longest if longest.source else None

    def lengths(self) -> np.ndarray:
        """Source and target length of every sample, ``(2, n)`` int64; the longest of targets that may be sampled."""
        parts = [np.stack([lengths.source, lengths.target]) for _, lengths, _ in self._lengths(None)]
        if not parts:
            raise FarspanError(
                f"packing needs lengths before rendering, which task {self.task.name} does not say (method "
                "`lengths`); set data.packing=false"
            )
        return np.concatenate(parts, 1)

    def cuts(self, rows: int | None = None) -> Cuts:
        """Count the samples that lose tokens, from lengths alone; none if the task does not say."""
        totals = np.zeros(6, np.int64)
        for _, lengths, documents in self._lengths(rows):
            cut = lengths.cut
            some = [np.count_nonzero(part) for part in (cut.query, cut.documents, cut.target)]
            totals += [len(documents), *some, documents.sum(), cut.documents.sum()]
        return Cuts(*totals.tolist())

    def _places(self, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Number of each sample's pair or group of pairs, and index of its target, ``(n,)`` int64 each."""
        places = np.searchsorted(self._starts, np.asarray(indices, np.int64), side="right") - 1
        return places, indices - self._starts[places]

    def _members(self, places: np.ndarray) -> Ragged:
        """Indices among the used pairs of the pairs in each of the ``(n,)`` groups, n rows."""
        return self._groups.take(places)

    def _lengths(self, rows: int | None) -> Iterator[tuple[int, Lengths, np.ndarray]]:
        """Yield blocks of samples: first sample, rendered lengths, ``(n,)`` document tokens; nothing if unknown."""
        measure = getattr(self.task, "lengths", None)
        if measure is None:
            return
        sizes, last = self._sizes, len(self) if rows is None else min(rows, len(self))
        sampled = self.task.samples == "sampled"
        for begin in range(0, last, _BLOCK):
            places, targets = self._places(np.arange(begin, min(begin + _BLOCK, last)))
            members = self._members(places)
            pairs, firsts = self._rows[members.values], members.offsets[:-1]
            documents = sizes.documents_of(pairs[firsts])
            numbers = None if sampled else np.repeat(targets, members.lengths)
            queries, answers = sizes.queries[pairs], sizes.targets_of(pairs, numbers)
            if self._joined:  # with a separator after each but the last, and perhaps a space before each but the first
                queries = np.add.reduceat(queries + 1, firsts) - 1
                each = 1 + bool(getattr(self.task, "target_space", False))
                answers = np.add.reduceat(answers + each, firsts) - each
            yield begin, measure(queries, documents, answers), _row_sums(documents)

    @cached_property
    def _sizes(self) -> PairLengths:
        return PairLengths.of(self._pairs)


def _row_sums(rows: Ragged) -> np.ndarray:
    """Sum of each row, ``(n,)`` int64."""
    sums = np.zeros(len(rows), np.int64)
    np.add.at(sums, np.repeat(np.arange(len(rows)), rows.lengths), rows.values)
    return sums
