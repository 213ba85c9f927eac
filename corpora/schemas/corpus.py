"""Random access to the rows of a finished corpus, memory-mapped, and the rules by which it uses documents."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from corpora.compiled import compiled
from corpora.errors import FarspanError
from corpora.schemas.sequences import SequenceBatch, corpus_schema
from corpora.storage.gather import Gatherable
from corpora.storage.manifest import Manifest
from corpora.storage.ragged import Ragged
from corpora.storage.shard_cache import ShardCache
from corpora.storage.sharded_rows import ShardedRows
from corpora.storage.strict_json import Natural, StructureError, decode


class Corpus(ShardedRows):
    """The rows 0 .. len-1 of a ``farspan.corpus`` folder."""

    def __init__(
        self, folder: str, format: str = "farspan.corpus", verify: bool = False, cache: ShardCache | None = None
    ) -> None:
        super().__init__(folder, format, verify, cache)
        self.schema = corpus_schema(self.manifest.tokenizer["vocab_size"])
        self._view = self.cache_by_batch(
            lambda shard, batch: Gatherable.of(SequenceBatch.from_arrow(self.batch(shard, batch)))
        )
        self._table = lru_cache(maxsize=None if self.cached_batches else 0)(self._token_table)

    def take(self, rows: np.ndarray) -> SequenceBatch:
        """Copy the given rows ``(n,)``, in the given order."""
        return self.gather(rows, self._view)

    def tokens(self, row: int) -> np.ndarray:
        """View one row's tokens, ``(length,)``, without copying."""
        shard, batch, inside = self.locate_row(row)
        return self._view(shard, batch).block.tokens[inside]

    def gather_tokens(self, rows: np.ndarray, out: np.ndarray, pad: int | None = None) -> np.ndarray:
        """Copy rows into a padded batch, with one compiled call per shard.

        ``rows``: ``(n,)`` row numbers. ``out``: ``(n, width)`` of an integer type that holds ``pad`` and every id; rows
        longer than ``width`` are truncated. ``pad``: id to write after a row's end; None leaves those positions
        unchanged. Returns ``(n,)`` int32, the number of tokens written into each row.
        """
        most, held = self.manifest.tokenizer["vocab_size"] - 1, np.iinfo(out.dtype)
        if most > held.max or not held.min <= (pad or 0) <= held.max:
            raise FarspanError(f"{self.folder}: {out.dtype} cannot hold ids up to {most} and pad {pad}; use int32")
        rows = np.asarray(rows, np.int64)
        shards = set((np.searchsorted(self.starts, rows, side="right") - 1).tolist())
        if shards and not (min(shards) >= 0 and max(shards) < len(self.starts) - 1):
            raise self._outside(rows)
        lengths = np.empty(len(rows), np.int32)
        for shard in shards:
            _gather(*self._table(shard), self.starts[shard], rows, out, lengths, pad is not None, pad or 0)
        return lengths

    def _token_table(self, shard: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return a shard as one flat token array, with the start and the length of each row in it.

        For an uncompressed shard, the array is a view of the whole mapped file.
        """
        buffer, reader = self.shard(shard)
        parts = [self._view(shard, batch).block.tokens for batch in range(reader.num_record_batches)]
        if not parts:
            return np.empty(0, np.uint16), np.empty(0, np.int64), np.empty(0, np.int64)
        kind = parts[0].values.dtype
        places = [part.values.ctypes.data - buffer.address for part in parts]
        # in a compressed shard the tokens are not part of the file
        if any(not 0 <= place < buffer.size or place % kind.itemsize for place in places):
            flat = Ragged.concatenate(parts)
            return flat.values, flat.offsets[:-1], flat.lengths
        starts = [part.offsets[:-1] + place // kind.itemsize for part, place in zip(parts, places, strict=True)]
        whole = np.frombuffer(buffer, kind, buffer.size // kind.itemsize)
        return whole, np.concatenate(starts), np.concatenate([part.lengths for part in parts])


def open_corpus(folder: str | os.PathLike[str], *, verify: bool = False) -> Corpus:
    """Open a corpus.

    Args:
        folder: folder written by ``farspan corpus``.
        verify: compare each shard with its checksum on first use.

    Raises:
        FarspanError: no finished corpus there.
    """
    return Corpus(os.fspath(folder), verify=verify)


@compiled(small=True)
def _gather(
    values: np.ndarray,  # (tokens of the shard,)
    starts: np.ndarray,  # (rows of the shard,)
    sizes: np.ndarray,  # (rows of the shard,)
    first: int,  # the shard's first row; rows of other shards are skipped
    rows: np.ndarray,  # (n,)
    out: np.ndarray,  # (n, width)
    lengths: np.ndarray,  # (n,)
    padded: bool,
    pad: int,
) -> None:
    for i in range(len(rows)):
        row = rows[i] - first
        if 0 <= row < len(starts):
            start, size = starts[row], min(sizes[row], out.shape[1])
            source, target = values[start : start + size], out[i, :size]
            for j in range(size):
                target[j] = source[j]
            if padded:
                out[i, size:] = pad
            lengths[i] = size


@dataclass(frozen=True, kw_only=True)
class DocumentUse:
    """The rules that a corpus builder states, by which the corpus is verified and described."""

    truncated: bool = False  # True if the end of a document may be missing
    overlap: Natural = 0  # tokens that a part may share with the part of the same document before it
    max_uses: Natural | None = 1  # of a document; None for any number
    one_shard: bool = True  # True if all parts of a document are in one shard
    left_out: str | None = None  # reason why documents may be left out; None if all are in the corpus

    @classmethod
    def of(cls, manifest: Manifest) -> DocumentUse:
        """Read the rules from a corpus's manifest."""
        config = manifest.config
        if "document_use" not in config:
            raise FarspanError(
                f"config.document_use, the rules by which builder {config['builder']!r} uses documents, is missing; "
                "make the builder write it (docs/formats.md)"
            )
        try:
            return decode(cls, config["document_use"], "config.document_use")
        except StructureError as error:
            raise FarspanError(f"{error}; make the corpus again, or correct its builder") from error
