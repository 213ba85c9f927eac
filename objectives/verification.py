"""Check a finished mask set against its manifest, the contract and the corpus it belongs to."""

from __future__ import annotations

import os
from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from corpora.corpus import Corpus
from corpora.errors import FarspanError
from corpora.manifest import Manifest
from corpora.sequences import SequenceBatch
from corpora.shards import shard_name
from corpora.verification import shards
from objectives.mask_set import MaskSet
from objectives.masks import MASK_SCHEMA, MaskBatch


def verify_masks(folder: str, corpus_folder: str | None = None) -> list[str]:
    """Every problem of a mask set on local disk; none when it is sound.

    Args:
        corpus_folder: where its corpus lies now; by default where the manifest says.

    Raises:
        FarspanError: the corpus is not there.
    """
    masks = MaskSet(folder)
    where = corpus_folder or masks.parent_folder
    corpus = Corpus(where)
    try:
        masks.check_parent(corpus)
    except FarspanError as error:
        return [str(error)]
    parents = len(corpus.manifest.shards)
    names = [shard_name(number, parents * masks.draws) for number in range(parents * masks.draws)]
    if names != [shard.name for shard in masks.manifest.shards]:
        return [f"manifest.json: shards are not those of {masks.draws} draws over the corpus's {parents}"]

    def check(manifest: Manifest, name: str, batches: list[pa.RecordBatch]) -> Iterator[str]:
        shard = names.index(os.path.basename(name))
        for number, record_batch in enumerate(batches):
            place = f"{name} batch {number}"
            sequences = SequenceBatch.from_arrow(corpus.batch(shard % parents, number))
            yield from _aligned(place, sequences, MaskBatch.from_arrow(record_batch), masks)

    return list(shards(folder, masks.manifest, MASK_SCHEMA, check))


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
        yield f"{place} row {row}: spans overlap, are empty or reach outside of the row"
    if bad.any():
        return
    examples = mask_set.objective.render(sequences, masks, mask_set.special_tokens)
    for column in ("source_lengths", "target_lengths"):
        wrong = np.flatnonzero(getattr(examples, column) > getattr(masks, column))
        for row in wrong:
            yield f"{place} row {row}: rendered {column} {getattr(examples, column)[row]} exceeds the recorded one"
