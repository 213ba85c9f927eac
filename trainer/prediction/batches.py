"""Batches of pairs for generation, and their encoder rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch

from corpora.storage.ragged import Ragged
from objectives.api.examples import Examples
from objectives.api.special_tokens import PAD, SpecialTokens
from trainer.generation.sources import Sources


@dataclass(frozen=True)
class GenerationBatch:
    """Pairs whose texts are generated together.

    Attributes:
        pairs: ``(n,)`` int64, rows of the pairs in the examples.
        sources: ``(B,)`` int64, for each encoder row, an example with its source.
        rows: ``(n,)`` int64, encoder row of each pair.
    """

    pairs: np.ndarray
    sources: np.ndarray
    rows: np.ndarray

    def inputs(self, examples: Examples, special: SpecialTokens, multiple: int = 1) -> Sources:
        """Make the input of ``generate``."""
        lengths = examples.source_lengths[self.sources]
        width = int(lengths.max())
        mask = np.arange(width) < lengths[:, None]
        ids = np.where(mask, examples.source_ids[self.sources, :width], special[PAD])
        marks = examples.global_positions
        prompts = examples.prompt_lengths
        return Sources(
            source_ids=torch.from_numpy(ids),
            source_padding_mask=None if mask.all() else torch.from_numpy(mask),
            global_positions=None if marks is None else torch.from_numpy(marks[self.sources, :width]),
            rows=self.rows,
            prompts=None
            if prompts is None
            else Ragged.from_rows([examples.target_ids[pair, : prompts[pair]] for pair in self.pairs], np.int64),
            seeds=examples.sequence_ids[self.pairs, :8].copy().view(np.uint64)[:, 0],
            multiple=multiple,
        )


def make_batches(
    source_lengths: np.ndarray, shared: np.ndarray, decoder_positions: np.ndarray, most_positions: int
) -> Iterator[GenerationBatch]:
    """Divide pairs into batches, long sources first; each batch has at least one pair.

    A batch's memory grows with the positions of its encoder rows, padded to the longest, and with the decoder positions
    that its texts may take, one for each beam.

    Args:
        source_lengths: ``(n,)``, length of each pair's source.
        shared: ``(n,)`` int64; pairs with equal numbers have the same source, which is encoded once per batch.
        decoder_positions: ``(n,)``, decoder positions that all texts of each pair take together.
        most_positions: maximum number of positions in a batch.
    """
    first = np.unique(shared, return_index=True)[1]  # the first pair of each source
    order = first[np.lexsort((first, -source_lengths[first].astype(np.int64)))]
    pairs: list[int] = []
    rows: list[int] = []
    sources: list[int] = []
    taken = 0  # positions of the decoder
    for source in order.tolist():
        for pair in np.flatnonzero(shared == shared[source]).tolist():
            width = int(source_lengths[sources[0] if sources else source])
            new = not sources or sources[-1] != source
            positions = (len(sources) + new) * width + taken + int(decoder_positions[pair])
            if pairs and positions > most_positions:
                yield _batch(pairs, sources, rows)
                pairs, sources, rows, taken, new = [], [], [], 0, True
            if new:
                sources.append(source)
            pairs.append(pair)
            rows.append(len(sources) - 1)
            taken += int(decoder_positions[pair])
    if pairs:
        yield _batch(pairs, sources, rows)


def _batch(pairs: list[int], sources: list[int], rows: list[int]) -> GenerationBatch:
    return GenerationBatch(*(np.array(column, np.int64) for column in (pairs, sources, rows)))
