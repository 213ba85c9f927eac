"""Rows of a corpus as a source of examples: with masks that are read from a mask set or drawn, or as plain text."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any

import numpy as np

from corpora.errors import FarspanError
from corpora.schemas.corpus import Corpus
from corpora.schemas.sequences import SequenceBatch
from corpora.storage.sharded_rows import ShardedRows
from objectives.api.examples import Examples
from objectives.api.mask_set import MaskSet
from objectives.api.masks import MaskBatch
from objectives.api.protocol import CorpusFacts, Objective, mask_draws, mask_key
from objectives.api.special_tokens import SpecialTokens, is_sentinel
from objectives.rendering.stream import StreamLayout, Streams


class CorpusRows:
    """The rows of a corpus, whose shards may lie in a remote store.

    ``chosen``, ``(n,)`` int64 ascending, are the rows that are samples; None for all.
    """

    def __init__(self, corpus: Corpus, chosen: np.ndarray | None = None) -> None:
        self.corpus, self.chosen = corpus, chosen

    def __len__(self) -> int:
        return len(self.corpus) if self.chosen is None else len(self.chosen)

    def in_corpus(self, indices: np.ndarray) -> np.ndarray:
        """The corpus rows of ``(n,)`` samples."""
        return indices if self.chosen is None else self.chosen[indices]

    def shards(self, indices: np.ndarray, epochs: np.ndarray) -> Iterator[tuple[ShardedRows, int]]:
        """Yield artefact and number of each remote shard that the rows at ``indices`` are read from, once."""
        if self.corpus.bounded:
            yield from ((self.corpus, shard) for shard in self.corpus.shards_of(self.in_corpus(indices)))

    @property
    def artefacts(self) -> list[ShardedRows]:
        """The artefacts that rows are read from."""
        return [self.corpus]

    @property
    def cached(self) -> list[ShardedRows]:
        """The artefacts whose shards are fetched from a remote store while they are read."""
        return [rows for rows in self.artefacts if rows.bounded]

    def most_bytes(self, shards: int | None) -> int:
        """The most bytes of remote shards that rows of so many shards are read from; None for all shards."""
        sizes = [sorted((shard.bytes for shard in rows.manifest.shards), reverse=True) for rows in self.cached]
        return sum(sum(own[:shards]) for own in sizes)

    @property
    def shard_rows(self) -> tuple[int, ...]:
        """Number of samples of each shard of the corpus that has any."""
        rows = np.arange(len(self.corpus)) if self.chosen is None else self.chosen
        return tuple(count for count in np.diff(np.searchsorted(rows, self.corpus.starts)).tolist() if count)


@dataclass(frozen=True)
class Drawing:
    """Masks drawn on the fly, in every epoch anew if ``redraw``; ``key`` is made by ``mask_key``."""

    key: bytes
    redraw: bool = True

    def masks(
        self, mask: Callable[[SequenceBatch, bytes], MaskBatch], batch: SequenceBatch, epochs: np.ndarray | None
    ) -> MaskBatch:
        """Draw masks of n rows with ``mask`` for their ``(n,)`` int64 ``epochs``, or for epoch 0."""
        if epochs is None or not self.redraw:
            return mask(batch, self.key)
        return mask_draws(mask, batch, self.key, epochs)

    @property
    def identity(self) -> str:
        """Equal for two drawings of the same masks."""
        return self.key.hex() + " redrawn" * self.redraw


@dataclass(frozen=True)
class Longest:
    """The maximum lengths of examples in positions, and the indices of the rows that may reach them."""

    source: int
    target: int
    source_row: int
    target_row: int

    def join(self, first: int, source: np.ndarray, target: np.ndarray) -> Longest:
        """The longest of these and of the ``(n,)`` lengths of rows from ``first`` on."""
        longest = self
        for side, lengths in (("source", source), ("target", target)):
            if lengths.max(initial=0) > getattr(longest, side):
                found = {side: int(lengths.max()), f"{side}_row": first + int(lengths.argmax())}
                longest = replace(longest, **found)
        return longest


class MaskedCorpus(CorpusRows):
    """A corpus and its masks, rendered when a batch is made; attributes as in ``Source``."""

    def __init__(
        self,
        corpus: Corpus,
        objective: Objective,
        special: SpecialTokens,
        masks: MaskSet | Drawing,
        segment_ids: bool = False,
        chosen: np.ndarray | None = None,
    ) -> None:
        super().__init__(corpus, chosen)
        self.objective, self._masks = objective, masks
        if segment_ids and "segment_ids" not in inspect.signature(objective.render).parameters:
            raise FarspanError(
                f"data.across_documents is false, but objective {objective.name} does not say which document a "
                "position belongs to: its render takes no segment_ids; set data.across_documents to true"
            )
        self._rendering: dict[str, Any] = {"segment_ids": True} if segment_ids else {}
        self.special = special
        self.tokenizer_fingerprint: str = corpus.manifest.tokenizer["fingerprint"]
        self.tokenizer_size: int = corpus.manifest.tokenizer["vocab_size"]
        identity = masks.identity if isinstance(masks, Drawing) else checksums(masks)
        tools = dict(getattr(objective, "tools", {}))
        facts = [checksums(corpus), objective.name, dict(objective.options), dict(special.ids), tools, identity]
        rows = [] if chosen is None else [sha256(chosen.tobytes()).hexdigest()]
        self.fingerprint = sha256(json.dumps([*facts, self._rendering, *rows]).encode()).hexdigest()

    @classmethod
    def of_masks(
        cls, corpus: Corpus, masks: MaskSet, *, segment_ids: bool = False, chosen: np.ndarray | None = None
    ) -> MaskedCorpus:
        """Read the masks from a mask set."""
        masks.check_parent(corpus)
        return cls(corpus, masks.objective, masks.special_tokens, masks, segment_ids, chosen)

    @classmethod
    def of_objective(
        cls,
        corpus: Corpus,
        objective: Objective,
        seed: int,
        *,
        redraw: bool = True,
        segment_ids: bool = False,
        chosen: np.ndarray | None = None,
    ) -> MaskedCorpus:
        """Draw in epoch n the masks that draw n of a mask set made with ``seed`` would hold."""
        special = objective.validate(CorpusFacts.of(corpus.manifest))
        return cls(corpus, objective, special, Drawing(mask_key(seed, objective), redraw), segment_ids, chosen)

    def examples(self, indices: np.ndarray, epochs: np.ndarray | None = None) -> Examples:
        """Render the rows at ``(n,)`` int64 ``indices``, in that order, with the masks of their ``(n,)`` ``epochs``.

        In epoch e, a mask set with n draws gives draw e modulo n.
        """
        batch, hidden = self.rows(indices, epochs)
        return self.objective.render(batch, hidden, self.special, **self._rendering)

    def streams(self, indices: np.ndarray, epochs: np.ndarray, layout: StreamLayout) -> Streams:
        """Render the examples of ``examples`` as rows for decoders."""
        return layout.stream_examples(self.examples(indices, epochs), self.special)

    @property
    def longest_known(self) -> int:
        """Positions that the longest source or target has by the mask set's manifest; 0 if it does not say."""
        if not isinstance(self._masks, MaskSet) or self._masks.adjusted:
            return 0
        totals = self._masks.manifest.totals
        return max(totals.get("max_source_length", 0), totals.get("max_target_length", 0))

    def rows(self, indices: np.ndarray, epochs: np.ndarray | None = None) -> tuple[SequenceBatch, MaskBatch]:
        """The corpus rows and mask rows that ``examples`` renders."""
        indices, masks = self.in_corpus(indices), self._masks
        batch = self.corpus.take(indices)
        if isinstance(masks, Drawing):
            return batch, masks.masks(self.objective.mask, batch, epochs)
        return batch, masks.masks(batch, indices, 0 if epochs is None else epochs % masks.draws)

    def shards(self, indices: np.ndarray, epochs: np.ndarray) -> Iterator[tuple[ShardedRows, int]]:
        """Yield artefact and number of each remote shard that ``examples`` reads, once."""
        yield from super().shards(indices, epochs)
        if isinstance(self._masks, MaskSet) and self._masks.bounded:
            rows = self.in_corpus(indices) + epochs % self._masks.draws * len(self.corpus)
            yield from ((self._masks, shard) for shard in self._masks.shards_of(rows))

    @property
    def artefacts(self) -> list[ShardedRows]:
        """The corpus, and the mask set if there is one."""
        return [rows for rows in (self.corpus, self._masks) if isinstance(rows, ShardedRows)]

    def with_special(self, special: SpecialTokens) -> MaskedCorpus:
        """Return the same examples with the ids of another table, which may have fewer sentinels."""
        self._require_tokens(special)
        return type(self)(self.corpus, self.objective, special, self._masks, bool(self._rendering), self.chosen)

    def _require_tokens(self, special: SpecialTokens) -> None:
        require_tokens(self.special, special, f"{self.corpus.folder}: objective {self.objective.name}", "objectives")

    @property
    def is_stored(self) -> bool:
        """True if masks are read from a mask set."""
        return isinstance(self._masks, MaskSet)

    @property
    def adjusted(self) -> bool:
        """True if other options select among the stored masks."""
        return isinstance(self._masks, MaskSet) and self._masks.adjusted

    @property
    def described(self) -> str:
        """A name of the source, for messages."""
        if isinstance(self._masks, MaskSet):
            return f"mask set {self._masks.folder}"
        return f"objective {self.objective.name} on {self.corpus.folder}"

    @property
    def has_targets(self) -> bool | None:
        """True if any row has a target token by the mask set's manifest; None if the manifest does not say."""
        if not isinstance(self._masks, MaskSet) or self._masks.adjusted:
            return None
        totals = self._masks.manifest.totals
        return totals["unmasked"] < totals["sequences"] if {"unmasked", "sequences"} <= totals.keys() else None

    def longest(self, rows: int | None = None) -> Longest | None:
        """Maximum lengths of drawn masks over all draws, or of stored masks; None if unknown.

        Reads the lengths of all rows, about two microseconds per row, and all masks if they are adjusted.
        """
        if not isinstance(self._masks, MaskSet) and not hasattr(self.objective, "longest"):
            return None
        begin, longest = 0, Longest(0, 0, 0, 0)
        samples = np.arange(len(self.corpus)) if self.chosen is None else self.chosen
        # Opened again without comparing checksums, because little of the files is read.
        for block in Corpus(self.corpus.folder, cache=self.corpus.cache).batches():
            batch = SequenceBatch.from_arrow(block)
            both = self._lengths(batch, begin)
            if both is None:
                return None
            first, stop = np.searchsorted(samples, [begin, begin + len(batch)]).tolist()
            own = samples[first : stop if rows is None else min(stop, rows)] - begin
            longest = longest.join(first, *(lengths[own] for lengths in both))
            begin += len(batch)
            if rows is not None and stop >= rows:
                break
        return longest

    def _lengths(self, batch: SequenceBatch, begin: int) -> tuple[np.ndarray, np.ndarray] | None:
        """Maximum source and target lengths over epochs of the rows from ``begin`` on, ``(n,)`` each."""
        masks = self._masks
        if isinstance(masks, Drawing):
            return self.objective.longest(batch)  # type: ignore[attr-defined]
        rows = np.arange(begin, begin + len(batch))
        draws = [masks.masks(batch, rows, draw) for draw in range(masks.draws)]
        sources, targets = [draw.source_lengths for draw in draws], [draw.target_lengths for draw in draws]
        return np.max(sources, axis=0), np.max(targets, axis=0)

    def origin(self, index: int) -> str:
        """The shard and the row in it of sequence ``index``."""
        row = int(self.in_corpus(np.array([index]))[0])
        shard = int(np.searchsorted(self.corpus.starts, row, side="right")) - 1
        return f"{self.corpus.path(shard)} row {row - self.corpus.starts[shard]}"


class TextCorpus(CorpusRows):
    """A corpus without masks, for causal language models; ``special`` are padding and the tokens around documents."""

    def __init__(self, corpus: Corpus, layout: StreamLayout) -> None:
        super().__init__(corpus)
        tokenizer = corpus.manifest.tokenizer
        self.special = layout.text_tokens(tokenizer["vocab_size"], tokenizer["owned_tokens"])

    def streams(self, indices: np.ndarray, epochs: np.ndarray, layout: StreamLayout) -> Streams:
        """Lay out the rows at ``(n,)`` int64 ``indices``, which are the same in all epochs."""
        return layout.stream_text(self.corpus.take(indices), self.special)

    @property
    def longest_known(self) -> int:
        """Number of tokens of the longest row by the corpus's manifest, without those around documents."""
        return self.corpus.manifest.totals["max_tokens"]


def rows_of_positions(corpus: Corpus, least: int, most: int) -> np.ndarray:
    """Find the rows whose text, with the room that the corpus reserves, has ``least`` to ``most`` positions.

    Returns ``(n,)`` int64, ascending; reads the lengths of all rows.
    """
    config, positions = corpus.manifest.config, [np.empty(0, np.int64)]
    for block in Corpus(corpus.folder, cache=corpus.cache).batches():  # opened again: no checksums for little reading
        batch = SequenceBatch.from_arrow(block)
        rooms = config["room_per_sequence"] + config["room_per_document"] * batch.document_starts.lengths
        positions.append(batch.tokens.lengths + rooms)
    sizes = np.concatenate(positions)
    chosen = np.flatnonzero((sizes >= least) & (sizes <= most))
    if not len(chosen):
        known = f"{sizes.min()} to {sizes.max()}" if len(sizes) else "no rows"
        raise FarspanError(
            f"row_positions is [{least}, {most}], but no row of {corpus.folder} has so many; its rows have {known}"
        )
    return chosen


def checksums(rows: ShardedRows) -> list[str]:
    """Return the checksums of an artefact's shards."""
    return [shard.sha256 for shard in rows.manifest.shards]


def require_tokens(needed: SpecialTokens, known: SpecialTokens, user: str, cure: str) -> None:
    """Check that a model knows all special tokens that ``user`` needs except sentinels, of which it may have fewer."""
    lacking = [name for name in needed.ids if name not in known.ids and not is_sentinel(name)]
    if lacking:
        raise FarspanError(
            f"{user} needs special tokens {', '.join(lacking)}, which the model does not know; use the {cure} of its "
            "training"
        )
