"""Access to the rows of a finished artefact by number, across all its shards."""

from __future__ import annotations

import math
import operator
import os
import threading
from collections.abc import Callable, Iterator, Sequence, Set
from functools import lru_cache
from typing import Any, ClassVar, TypeVar, overload

import numpy as np
import pyarrow as pa

from corpora.errors import FarspanError, StoreError
from corpora.printing import format_count, format_total, row_numbers
from corpora.storage import files
from corpora.storage.arrow_views import plain_row
from corpora.storage.gather import Block, Gatherable, gather
from corpora.storage.manifest import Manifest
from corpora.storage.manifest_contents import tokenizer_fault
from corpora.storage.manifest_file import file_info, read_manifest
from corpora.storage.shard_cache import ShardCache
from corpora.storage.shards import list_shards, map_shard, open_shard, unreadable_error
from corpora.tokenizers.load import load_tokenizer_of

_CACHED_BATCHES = 1 << 16
_COPY_AGAIN = "copy the artefact again, as a whole, or run the job that made it into an empty folder"

Made = TypeVar("Made")
Mapped = tuple[pa.Buffer, pa.ipc.RecordBatchFileReader]


class ShardedRows:
    """Random access to the rows of a finished artefact, numbered 0, 1, ... over its shards in name order.

    Opening reads only the manifest; each shard is memory-mapped on first use, and views of its record batches are kept.
    Shards of a remote artefact are mapped from the cache. Without a cache, they are fetched whole to temporary files,
    unless they lie in the folder of all copies or ``read_ranges`` was called; of these, and of shards in a bounded
    cache, those named by ``keep`` and the few read last stay mapped.
    """

    as_html: ClassVar[Callable[[ShardedRows], str | None] | None] = None
    """Shows an artefact in a notebook's cell; set for all by a package that has pages."""

    def __init__(self, folder: str, format: str, verify: bool = False, cache: ShardCache | None = None) -> None:
        """Open the finished artefact of this format in ``folder``.

        ``verify``: compare each local shard with its checksum on first use; copies of remote ones always are.
        ``cache``: for the shards of a remote artefact; None for private temporary files.
        """
        self.folder, self.verify = folder, verify
        self.manifest: Manifest = read_manifest(folder, format)
        self._stored = list_shards(folder, self.manifest)
        self.schema: pa.Schema | None = None  # of every shard, if a subclass sets it
        # starts: (shards + 1,) int64, the number of each shard's first row
        self.starts = np.cumsum([0, *(shard.rows for shard in self.manifest.shards)])
        self.cache = None if files.is_local(folder) else cache
        self._stay = files.is_local(folder) or (self.cache is not None and self.cache.size == math.inf)
        self.cached_batches = _CACHED_BATCHES if self._stay else 0  # a batch would keep its shard mapped
        self._ranges = False
        sizes = [shard.bytes for shard in self.manifest.shards]
        self._fetched = FetchedShards(self._open, sizes, last=1 if cache else 4)
        self.shard = lru_cache(maxsize=None)(self._open) if self._stay else self._fetched
        self.batch = self.cache_by_batch(self._batch)

    def __len__(self) -> int:
        return int(self.starts[-1])

    def __repr__(self) -> str:
        """Folder, size, totals and columns, a line each."""
        size = f"{format_count(len(self), 'row')} in {format_count(len(self.manifest.shards), 'shard')}"
        totals = self.manifest.totals.items()
        sums = [format_total(value, name) for name, value in totals if not name.startswith("max_")]
        lines = [f"{type(self).__name__}({self.folder!r}): {size}"]
        lines += [f"  totals: {', '.join(sums)}"] if sums else []
        lines += [] if self.schema is None else [f"  columns: {', '.join(self.schema.names)}"]
        return "\n".join(lines)

    def _repr_html_(self) -> str | None:
        """Show the first row in a notebook's cell, if a package above this one has set ``as_html``."""
        return ShardedRows.as_html(self) if ShardedRows.as_html else None

    @overload
    def __getitem__(self, row: int) -> dict[str, Any]: ...
    @overload
    def __getitem__(self, row: slice) -> list[dict[str, Any]]: ...
    def __getitem__(self, row: int | slice) -> dict[str, Any] | list[dict[str, Any]]:
        """Return a row by column, with lists of numbers as arrays; for a slice, a list of rows.

        ``take`` of subclasses reads many rows as one batch.

        Raises:
            IndexError: a row that is not there.
            TypeError: neither a number nor a slice.
        """
        if isinstance(row, slice):
            return [self[number] for number in range(len(self))[row]]
        try:
            number = operator.index(row)
        except TypeError:
            raise TypeError(f"[{row!r}]: give the number of a row or a slice; take and to_pandas read lists") from None
        if not -len(self) <= number < len(self):
            raise IndexError(f"row {number} of {self.folder}, which has {row_numbers(len(self))}")
        shard, batch, inside = self.locate_row(number % len(self))
        return plain_row(self.batch(shard, batch), inside)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for batch in self.batches():
            for row in range(len(batch)):
                yield plain_row(batch, row)

    def __getstate__(self) -> dict[str, Any]:
        return {"folder": self.folder, "format": self.manifest.format, "verify": self.verify, "cache": self.cache}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]

    @property
    def bounded(self) -> ShardCache | None:
        """The cache, if it may hold less than all shards."""
        return None if self._stay else self.cache

    def cache_by_batch(self, make: Callable[[int, int], Made]) -> Callable[[int, int], Made]:
        """Cache the results of ``make(shard, record batch)`` for as long as the shard is kept."""
        if self._stay:
            return lru_cache(maxsize=self.cached_batches)(make)

        def kept(shard: int, batch: int) -> Made:
            known = self._fetched.derived(shard)
            key = (make, batch)
            if key not in known:
                known[key] = make(shard, batch)
            return known[key]

        return kept

    def read_ranges(self) -> None:
        """Read only the record batches that are asked for, of shards opened from now on, unless they are cached."""
        self._ranges = True

    def keep(self, shards: Set[int], room: float = 0) -> int:
        """Keep these shards of a remote artefact mapped; of the others, those read last, up to ``room`` bytes in all.

        Of shards that are read later, only the last few stay. Returns the bytes of the shards that are kept.
        """
        return self._fetched.keep(shards, room)

    def fetch(self, shard: int) -> bool:
        """Fetch a shard of a remote artefact into the cache and map it; False if the cache has no room at present."""
        info = self.manifest.shards[shard]
        if shard in self._fetched:
            return True
        assert self.cache is not None
        if (buffer := self.cache.map(self.path(shard), info, patience=0)) is None:
            return False
        self._fetched.add(shard, self._read(shard, buffer))
        return True

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield all record batches, in the order of the rows."""
        for shard in range(len(self.manifest.shards)):
            for batch in range(self.shard(shard)[1].num_record_batches):
                yield self.batch(shard, batch)

    def path(self, shard: int) -> str:
        return self._stored[shard].path

    def check_files(self) -> None:
        """Check the size of every shard, without reading it, and the checksums of all other files.

        Shards for an unbounded cache are fetched instead.
        """
        for name, listed in self.manifest.files.items():
            path = os.path.join(self.folder, name)
            try:
                with files.open(path) as file:
                    actual = file_info(file).sha256
            except OSError as error:
                raise StoreError(f"{path}: {error.strerror}; {_COPY_AGAIN}") from error
            if actual != listed.sha256:
                raise StoreError(f"{path}: sha256 {actual} where the manifest says {listed.sha256}; {_COPY_AGAIN}")
        has_tokenizer = files.walk(os.path.join(self.folder, "tokenizer"))
        tokenizer = load_tokenizer_of(self.folder) if has_tokenizer else None
        if tokenizer and (wrong := tokenizer_fault(self.manifest, tokenizer)):
            raise FarspanError(f"{self.folder}: its tokenizer is not that of its manifest: {wrong}; {_COPY_AGAIN}")
        if self.cache:  # fetching compares sizes and checksums; a request for each shard would take minutes
            if not self.bounded:
                shards = enumerate(self.manifest.shards)
                self.cache.fill(self.folder, [(self.path(number), info) for number, info in shards])
            return
        for shard, info in enumerate(self.manifest.shards):
            try:
                size = files.size(self.path(shard))
            except OSError as error:
                raise unreadable_error(self.path(shard), error) from error
            if size != info.bytes:
                raise unreadable_error(self.path(shard), f"{size:,} bytes where the manifest says {info.bytes:,}")

    def check_shard(self, shard: int) -> None:
        """Compare a shard with its checksum."""
        self._stored[shard].compare(map_shard(self.path(shard))[0])

    def locate(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return shard, record batch in the shard and row in the batch of each given row; all ``(n,)`` int64."""
        rows = np.asarray(rows, np.int64)
        if len(rows) and not (rows.min() >= 0 and rows.max() < len(self)):
            raise self._outside(rows)
        shards = np.searchsorted(self.starts, rows, side="right") - 1
        inside = rows - self.starts[shards]
        return shards, inside // self.manifest.rows_per_batch, inside % self.manifest.rows_per_batch

    def locate_row(self, row: int) -> tuple[int, int, int]:
        """Return shard, record batch in the shard and row in the batch of a row."""
        shard, batch, inside = (int(column[0]) for column in self.locate(np.array([row])))
        return shard, batch, inside

    def table(self, rows: Sequence[int] | np.ndarray) -> pa.Table:
        """Return the given rows, in the given order, with all columns of a subclass's ``schema``."""
        places = zip(*(column.tolist() for column in self.locate(np.asarray(rows))), strict=True)
        slices = [self.batch(shard, batch).slice(inside, 1) for shard, batch, inside in places]
        return pa.Table.from_batches(slices, self.schema)

    def to_pandas(self, rows: Sequence[int] | np.ndarray | None = None) -> Any:
        """Copy the given rows, or all of them, into a DataFrame of pandas with the columns of the artefact."""
        if isinstance(rows, slice):
            raise TypeError(f"to_pandas({rows}): give a list of row numbers or a range, such as range(10)")
        table = pa.Table.from_batches(self.batches()) if rows is None else self.table(rows)
        try:
            return table.to_pandas()
        except ImportError as error:
            raise FarspanError("to_pandas needs pandas: pip install pandas") from error

    def shards_of(self, rows: np.ndarray) -> list[int]:
        """Return the shards that hold any of the given rows ``(n,)``, ascending."""
        return np.unique(np.searchsorted(self.starts, rows, side="right") - 1).tolist()

    def gather(self, rows: np.ndarray, view: Callable[[int, int], Gatherable[Block]]) -> Block:
        """Copy the given rows ``(n,)``, n at least 1, into one block, in the given order.

        ``view`` returns the block of a shard's record batch, and should cache it (``cache_by_batch``).
        """
        shards, batches, inside = self.locate(rows)
        blocks = [view(*place) for place in zip(shards.tolist(), batches.tolist(), strict=True)]
        return gather(blocks, np.arange(len(blocks)), inside)

    def _outside(self, rows: np.ndarray) -> IndexError:
        return IndexError(f"rows {rows.min()}..{rows.max()} of {self.folder}, which has {len(self)}")

    def _open(self, shard: int) -> Mapped:
        stored, info = self._stored[shard], self.manifest.shards[shard]
        if files.is_local(stored.path):
            mapped = stored.map() if self.verify else map_shard(stored.path, ahead=not self._ranges)
            return self._check_reader(shard, *mapped)
        copy = self.cache.map(stored.path, info) if self.cache else ShardCache().find(info)
        if copy is not None:
            return self._read(shard, copy)
        if self._ranges:
            return self._check_reader(shard, pa.py_buffer(b""), open_shard(stored.path))
        return self._check_reader(shard, *stored.map())

    def _read(self, shard: int, buffer: pa.Buffer) -> Mapped:
        """Read the end of a shard in the cache."""
        try:
            reader = pa.ipc.open_file(buffer)
        except (OSError, pa.ArrowInvalid) as error:
            raise unreadable_error(self.path(shard), error) from error
        return self._check_reader(shard, buffer, reader)

    def _check_reader(self, shard: int, buffer: pa.Buffer, reader: pa.ipc.RecordBatchFileReader) -> Mapped:
        if self.schema is not None and not reader.schema.equals(self.schema):
            raise unreadable_error(self.path(shard), f"its columns are not those of {self.manifest.format}")
        expected = -(-self.manifest.shards[shard].rows // self.manifest.rows_per_batch)
        if reader.num_record_batches != expected:
            raise FarspanError(
                f"{self.path(shard)}: {reader.num_record_batches} record batches where the manifest says {expected}; "
                "the shard belongs to another artefact: copy the right one"
            )
        return buffer, reader

    def _batch(self, shard: int, batch: int) -> pa.RecordBatch:
        try:
            rows = self.shard(shard)[1].get_batch(batch)
        except (OSError, pa.ArrowInvalid) as error:
            raise unreadable_error(self.path(shard), error) from error
        size = self.manifest.rows_per_batch
        if len(rows) != (expected := min(size, self.manifest.shards[shard].rows - batch * size)):
            raise unreadable_error(self.path(shard), f"record batch {batch} has {len(rows)} rows, not {expected}")
        return rows


class FetchedShards:
    """The mapped shards of a remote artefact, of ``sizes`` bytes, and objects derived from their record batches.

    Those of ``keep`` stay, and beside them the ``last`` that were read most recently.
    """

    def __init__(self, open_shard: Callable[[int], Mapped], sizes: Sequence[int], last: int) -> None:
        self._open, self._sizes, self._last, self._kept = open_shard, sizes, last, frozenset[int]()
        self._shards: dict[int, tuple[Mapped, dict[Any, Any]]] = {}  # the last used one is last
        self._lock = threading.Lock()

    def __call__(self, shard: int) -> Mapped:
        return self._entry(shard)[0]

    def __contains__(self, shard: int) -> bool:
        return shard in self._shards

    def derived(self, shard: int) -> dict[Any, Any]:
        """Return the objects derived from the record batches of a shard; callers add to them."""
        return self._entry(shard)[1]

    def add(self, shard: int, mapped: Mapped) -> None:
        with self._lock:
            self._shards.setdefault(shard, (mapped, {}))

    def keep(self, shards: Set[int], room: float = 0) -> int:
        """Do as ``ShardedRows.keep`` says."""
        with self._lock:
            self._kept = frozenset(shards)
            size = sum(self._sizes[shard] for shard in self._shards.keys() | shards)
            for shard in self._list_unkept():
                if size > room:
                    del self._shards[shard]
                    size -= self._sizes[shard]
            return size

    def _entry(self, shard: int) -> tuple[Mapped, dict[Any, Any]]:
        with self._lock:
            entry = self._shards.pop(shard, None)
            if entry is not None:
                self._shards[shard] = entry
                return entry
        mapped = self._open(shard)  # takes long: other shards can be read meanwhile
        with self._lock:
            entry = self._shards.setdefault(shard, (mapped, {}))
            unkept = self._list_unkept()
            for other in unkept[: max(len(unkept) - self._last, 0)]:
                del self._shards[other]
            return entry

    def _list_unkept(self) -> list[int]:
        return [shard for shard in self._shards if shard not in self._kept]
