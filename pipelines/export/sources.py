"""Items of documents, corpus rows and rendered masks, batch by batch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from corpora.errors import FarspanError
from corpora.schemas.sequences import SequenceBatch
from corpora.storage.arrow_views import booleans
from corpora.storage.ragged import Ragged
from corpora.storage.shards import StoredShard
from objectives.api.examples import Examples
from objectives.api.mask_set import MaskSet
from objectives.api.masks import MaskBatch
from objectives.rendering.stream import StreamLayout
from pipelines.export.format import Frame, Items, Parts, check_fit


@dataclass(frozen=True)
class Shards:
    """A shard to export: of documents or of a corpus, and the one of its masks."""

    rows: StoredShard
    masks: StoredShard | None = None


@dataclass(frozen=True)
class DocumentItems:
    """Each document of one split is an item."""

    held_out: bool

    def __call__(self, shards: Shards, frame: Frame) -> Iterator[Items]:
        for batch in shards.rows.batches():
            rows = np.flatnonzero(booleans(batch.column("held_out")) == self.held_out)
            tokens = Ragged.from_arrow(batch.column("tokens"))
            items = frame.lay_out(_separate(tokens.values, tokens.offsets[rows], tokens.lengths[rows]))
            yield replace(items, domains=batch.column("source").take(pa.array(rows)) if frame.domains else None)


@dataclass(frozen=True)
class CorpusItems:
    """Each row of a corpus, or each of its parts, is an item.

    In a row, <eos> follows each part that ends its document or is followed by another part.
    """

    unit: str

    def __call__(self, shards: Shards, frame: Frame) -> Iterator[Items]:
        for record_batch in shards.rows.batches():
            batch = SequenceBatch.from_arrow(record_batch)
            parts = _parts(batch)
            documents = None
            if self.unit == "documents":
                parts, documents = _separate(parts.values, parts.starts, parts.sizes), batch.document_ids.flatten()
            yield replace(frame.lay_out(parts), domains=_domains(batch, documents) if frame.domains else None)


@dataclass(frozen=True)
class MaskItems:
    """Each rendered row of the mask set in ``folder`` is an item.

    The layout is ``stream``, with <eos> between source and target if it ``ends_between``, or ``seq2seq``.
    """

    folder: str
    layout: str
    ends_between: bool

    def __call__(self, shards: Shards, frame: Frame) -> Iterator[Items]:
        masks, stored = open_masks(self.folder), shards.masks
        assert stored is not None
        for rows, mask_rows in zip(shards.rows.batches(), stored.batches(), strict=True):
            batch, mask_batch = SequenceBatch.from_arrow(rows), MaskBatch.from_arrow(mask_rows)
            if not np.array_equal(batch.sequence_ids, mask_batch.sequence_ids):
                raise FarspanError(
                    f"{stored.path}: masks other rows than {shards.rows.path} has; run `farspan mask` again"
                )
            examples = masks.objective.render(batch, mask_batch, masks.special_tokens)
            if self.layout == "seq2seq":
                yield _pairs(examples, frame)
                continue
            layout = StreamLayout(ends_between=self.ends_between)
            streams = layout.stream_examples(examples, masks.special_tokens)
            ids, loss = streams.input_ids, streams.labels.values >= 0
            items = frame.lay_out(_separate(ids.values, ids.offsets[:-1], ids.lengths, ended=False), loss)
            yield replace(items, domains=_domains(batch) if frame.domains else None)


def _domains(batch: SequenceBatch, documents: pa.Array | None = None) -> pa.Array:
    """Return the sources, the beginnings of ids, of ``documents``, or of the first document of each row."""
    first = pc.list_element(batch.document_ids, 0) if documents is None else documents
    return pc.list_element(pc.split_pattern(first, ":", max_splits=1), 0)


@lru_cache(maxsize=1)
def open_masks(folder: str) -> MaskSet:
    """Open a mask set, once per process."""
    return MaskSet(folder)


def _pairs(examples: Examples, frame: Frame) -> Items:
    source = Ragged.from_lengths(examples.source_ids[examples.source_mask], examples.source_lengths)
    check_fit(source.values, frame.dtype)
    if examples.labels is None:
        labels = Ragged.from_lengths(examples.target_ids[examples.target_mask], examples.target_lengths)
    else:
        labels = Ragged(examples.labels[examples.source_mask], source.offsets)
    starts = Ragged.from_lengths(np.zeros(len(examples), np.int64), np.ones(len(examples), np.int64))
    return Items(Ragged(source.values.astype(frame.dtype), source.offsets), starts, len(examples), labels=labels)


def _parts(batch: SequenceBatch) -> Parts:
    """Return the parts of corpus rows."""
    tokens, inside = batch.tokens, batch.document_starts.compact()
    starts = inside.values + np.repeat(tokens.offsets[:-1], inside.lengths)
    sizes = np.append(starts[1:], tokens.offsets[-1]) - starts
    ended = batch.document_offsets.compact().values + sizes == batch.document_lengths.compact().values
    followed = np.ones(len(starts), bool)
    followed[inside.offsets[1:] - 1] = False
    return Parts(tokens.values, starts, sizes, ended | followed, inside.offsets)


def _separate(values: np.ndarray, starts: np.ndarray, sizes: np.ndarray, ended: bool = True) -> Parts:
    """Make each part an item."""
    return Parts(values, starts, sizes, np.full(len(starts), ended), np.arange(len(starts) + 1))
