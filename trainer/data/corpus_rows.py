"""Rows of a corpus as a source of samples: what masks and plain text share, and the text."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from corpora.schemas.corpus import Corpus
from corpora.storage.sharded_rows import ShardedRows
from objectives.rendering.stream import Streams
from objectives.rendering.stream_layout import StreamLayout


class CorpusRows:
    """The rows of a corpus, whose shards may lie in a remote store.

    Attributes:
        corpus: the corpus.
    """

    def __init__(self, corpus: Corpus) -> None:
        self.corpus = corpus

    def __len__(self) -> int:
        return len(self.corpus)

    def shards(self, indices: np.ndarray, epochs: np.ndarray) -> Iterator[tuple[ShardedRows, int]]:
        """Yield artefact and number of each remote shard that the rows at ``indices`` are read from, once."""
        if self.corpus.bounded:
            yield from ((self.corpus, shard) for shard in self.corpus.shards_of(indices))

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
        """Number of rows of each shard of the corpus."""
        return tuple(shard.rows for shard in self.corpus.manifest.shards)


class TextCorpus(CorpusRows):
    """A corpus without masks, for causal language models.

    Attributes:
        special: ids of padding and of the tokens around documents.
    """

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
