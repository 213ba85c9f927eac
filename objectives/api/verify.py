"""Verification of a finished mask set against its manifest, its format and its corpus."""

from __future__ import annotations

import os
from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from corpora.errors import FarspanError
from corpora.schemas.corpus import Corpus
from corpora.schemas.sequences import SequenceBatch
from corpora.verify.artefact import check_other_files, check_shards, check_totals
from objectives.api.mask_set import MaskSet
from objectives.api.masks import IN_SOURCE, IN_TARGET, REPLACED, TOTALS, VISIBLE, MaskBatch, add_mask_totals

_ALL_FLAGS = IN_SOURCE | VISIBLE | IN_TARGET | REPLACED


def verify_masks(folder: str, corpus_folder: str | None = None) -> list[str]:
    """List every problem of a mask set."""
    masks = MaskSet(folder)
    where = corpus_folder or masks.parent_folder
    corpus = Corpus(where)
    try:
        masks.check_parent(corpus)
    except FarspanError as error:
        return [str(error)]
    parents = len(corpus.manifest.shards)
    names = [shard.name for shard in masks.manifest.shards]
    counted = dict.fromkeys(TOTALS, 0)

    def check(name: str, batches: list[pa.RecordBatch]) -> Iterator[str]:
        shard = names.index(os.path.basename(name))
        for number, record_batch in enumerate(batches):
            place = f"{name} batch {number}"
            sequences = SequenceBatch.from_arrow(corpus.batch(shard % parents, number))
            batch = MaskBatch.from_arrow(record_batch)
            faults = list(_aligned(place, sequences, batch, masks))
            yield from faults
            if not faults:
                add_mask_totals(counted, batch)

    problems = [*check_other_files(folder, masks.manifest), *check_shards(folder, masks.manifest, masks.schema, check)]
    return problems or list(check_totals(masks.manifest, counted))


def _aligned(place: str, sequences: SequenceBatch, masks: MaskBatch, mask_set: MaskSet) -> Iterator[str]:
    if len(sequences) != len(masks) or (sequences.sequence_ids != masks.sequence_ids).any():
        yield f"{place}: sequence ids differ from the corpus's"
        return
    starts, sizes = masks.span_starts.compact(), masks.span_lengths.compact()
    if (starts.lengths != sizes.lengths).any() or (starts.lengths != masks.span_flags.lengths).any():
        yield f"{place}: span columns have different lengths"
        return
    rows = np.repeat(np.arange(len(masks)), starts.lengths)  # (spans,) the row of each span
    ends = starts.values + sizes.values
    bad = (sizes.values < 1) | (starts.values < 0) | (ends > sequences.tokens.lengths[rows])
    bad[1:] |= (rows[1:] == rows[:-1]) & (starts.values[1:] < ends[:-1])
    for row in np.unique(rows[bad]):
        yield f"{place} row {row}: spans overlap, are empty or reach outside the row"
    if bad.any():
        return
    if (unknown := masks.span_flags.compact().values > _ALL_FLAGS).any():
        yield f"{place} row {rows[unknown][0]}: span_flags have undefined bits"
        return
    try:
        examples = mask_set.objective.render(sequences, masks, mask_set.special_tokens)
    except FarspanError as error:
        yield f"{place}: cannot be rendered: {error}"
        return
    for column in ("source_lengths", "target_lengths"):
        rendered, stored = getattr(examples, column), getattr(masks, column)
        for row in np.flatnonzero(rendered != stored).tolist():
            yield f"{place} row {row}: {column} is {rendered[row]} after rendering, but {stored[row]} is stored"
    size = mask_set.special_tokens.vocab_size
    for name, ids in (("source", examples.source_ids), ("target", examples.target_ids)):
        for row in np.flatnonzero(((ids < 0) | (ids >= size)).any(axis=1)).tolist():
            yield f"{place} row {row}: its {name} has an id that is not in 0..{size - 1}"
