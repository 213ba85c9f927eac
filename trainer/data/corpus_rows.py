"""Rows of a corpus as a source of samples: what masks and plain text share, and the text."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from corpora.errors import FarspanError
from corpora.schemas.corpus import Corpus
from corpora.schemas.sequences import SequenceBatch
from corpora.storage.sharded_rows import ShardedRows
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
