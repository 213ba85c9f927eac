"""Contents of an exported file (``Items``), their layout from parts of documents, and file formats (``Format``)."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from corpora.errors import FarspanError
from corpora.storage import files
from corpora.storage.files import CountingHash
from corpora.storage.manifest import FileInfo
from corpora.storage.ragged import Ragged, concatenate_columns


@dataclass(frozen=True, slots=True)
class Items:
    """``n`` items of an exported file: rows, or parts of documents."""

    tokens: Ragged  # n rows of ids in the type of the file
    starts: Ragged  # n rows of int64, where each document's part begins in its item, and padding after an <eos>
    documents: int = 0  # parts of documents
    padding: int = 0  # ids in ``tokens`` that are padding
    loss: np.ndarray | None = None  # (total,) bool, ids of ``tokens`` that are targets; None if all are
    labels: Ragged | None = None  # n rows of int32, if they are not ``tokens`` with ``loss``: of an encoder, or targets
    domains: pa.Array | None = None  # (n,) strings, the source of each item's first document; None if not requested

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def targets(self) -> int:
        """Number of targets; all ids but padding if none are marked."""
        if self.labels is not None:
            return int((self.labels.values >= 0).sum())
        return len(self.tokens.values) if self.loss is None else int(self.loss.sum())


@dataclass(frozen=True, slots=True)
class Parts:
    """Parts of documents, grouped to items."""

    values: np.ndarray  # (total,) ids of a record batch
    starts: np.ndarray  # (parts,) int64, place of each part in values
    sizes: np.ndarray  # (parts,) int64
    ended: np.ndarray  # (parts,) bool, parts after which <eos> comes
    offsets: np.ndarray  # (n + 1,) int64, first part of each item


@dataclass(frozen=True, kw_only=True)
class Frame:
    """Ids around text, and the shape of items."""

    dtype: str  # numpy's name
    eos: int  # after each part that ends
    bos: int | None = None  # before each part
    pad: int = 0
    width: int | None = None  # length of every item; None if items keep their own lengths
    domains: bool = False  # if items need theirs

    def lay_out(self, parts: Parts, loss: np.ndarray | None = None) -> Items:
        """Lay out parts as items; ``loss``, ``(total,)`` bool, are the targets among the items' ids, in order."""
        check_fit(parts.values, self.dtype)
        begin = int(self.bos is not None)
        sizes = parts.sizes + begin + parts.ended
        ends = np.concatenate([[0], np.cumsum(sizes)])
        lengths = np.diff(ends[parts.offsets])
        counts = np.diff(parts.offsets)
        widths = lengths if self.width is None else np.full(len(lengths), self.width)
        if (longest := int(lengths.max(initial=0))) > (self.width or longest):
            raise FarspanError(
                f"a row has {longest:,} ids, and rows are to have {self.width:,}; give a larger --length"
            )
        out = Ragged.from_lengths(np.full(int(widths.sum()), self.pad, self.dtype), widths)
        inside = ends[:-1] - np.repeat(ends[parts.offsets[:-1]], counts)
        places = inside + np.repeat(out.offsets[:-1], counts)
        if self.bos is not None:
            out.values[places] = self.bos
        out.values[(places + sizes - 1)[parts.ended]] = self.eos
        # A copy for each part: a compiled loop would save less than numba takes to load.
        firsts, counted = (places + begin).tolist(), parts.sizes.tolist()
        for first, start, size in zip(firsts, parts.starts.tolist(), counted, strict=True):
            out.values[first : first + size] = parts.values[start : start + size]
        shown = None
        if loss is not None or (widths > lengths).any():
            shown = np.ones(len(out.values), bool)
            if self.width is not None:
                shown = (np.arange(self.width) < lengths[:, None]).reshape(-1)
            if loss is not None:
                shown[shown] = loss
        starts = Ragged.from_lengths(inside, counts)
        padded = widths > lengths
        if padded.any():
            padded[padded] = out.values[(out.offsets[:-1] + lengths - 1)[padded]] == self.eos
            begins = np.insert(inside, starts.offsets[1:][padded], lengths[padded])
            starts = Ragged.from_lengths(begins, counts + padded)
        return Items(out, starts, len(parts.sizes), int((widths - lengths).sum()), shown)


def check_fit(ids: np.ndarray, dtype: str) -> None:
    """Refuse ids that do not fit a type."""
    if np.iinfo(ids.dtype).max > (most := np.iinfo(dtype).max) and len(ids) and (largest := int(ids.max())) > most:
        raise FarspanError(f"id {largest:,} does not fit {dtype}; leave --dtype out")


def split(batches: Iterable[Items], sizes: Callable[[Items], np.ndarray], most: int) -> Iterator[Items]:
    """Yield the items of all batches in groups of at most ``most`` bytes, and at least one item.

    ``sizes`` returns the bytes of each item, ``(n,)``.
    """
    waiting: list[Items] = []
    free = most
    for items in batches:
        ends, first = np.cumsum(sizes(items)), 0
        while first < len(items):
            begun = int(ends[first - 1]) if first else 0
            stop = int(np.searchsorted(ends, begun + free, side="right"))
            stop = max(stop, first + (not waiting))
            if stop > first:
                waiting.append(_slice(items, first, stop))
                free -= int(ends[stop - 1]) - begun
            if stop < len(items):
                yield _join(waiting)
                waiting, free = [], most
            first = stop
    if waiting:
        yield _join(waiting)


def _slice(items: Items, first: int, stop: int) -> Items:
    tokens = Ragged(items.tokens.values, items.tokens.offsets[first : stop + 1])
    loss = None if items.loss is None else items.loss[tokens.offsets[0] : tokens.offsets[-1]]
    starts = Ragged(items.starts.values, items.starts.offsets[first : stop + 1])
    domains = None if items.domains is None else items.domains[first:stop]
    return Items(tokens.compact(), starts.compact(), loss=loss, domains=domains)


def _join(parts: list[Items]) -> Items:
    loss = None if parts[0].loss is None else np.concatenate([part.loss for part in parts if part.loss is not None])
    tokens, starts = (Ragged.concatenate([getattr(part, name) for part in parts]) for name in ("tokens", "starts"))
    return Items(tokens, starts, loss=loss, domains=concatenate_columns([part.domains for part in parts]))


Entry = Mapping[str, Any]


@dataclass(frozen=True)
class Part:
    """The files that one task writes: ``name``, their common beginning, and type of ids.

    ``vocabulary`` names the tokenizer, for people; ``files`` has bytes and checksums by path in ``folder``.
    """

    folder: str
    name: str
    dtype: str
    vocabulary: str
    files: dict[str, FileInfo] = field(default_factory=dict)

    @contextmanager
    def create(self, suffix: str, subfolder: str = "") -> Iterator[CountingHash]:
        """Create a file atomically and record its checksum."""
        name = os.path.join(subfolder, self.name + suffix)
        with files.create(os.path.join(self.folder, name)) as file:
            sink = CountingHash(file)
            yield sink
        self.files[name] = FileInfo(sink.bytes, sink.sha256())


@dataclass(frozen=True)
class Format:
    """A file format of other trainers.

    ``write`` writes the items of a task, at least one, and returns what ``index`` has to know. ``index`` makes
    the files that list all others, by name, from the entries of all tasks.
    """

    write: Callable[[Part, Iterable[Items]], Sequence[Entry]]
    dtypes: Mapping[str, int]  # types of ids that its readers know -> the largest vocabulary for which one is chosen
    room: int | None = None  # ids of a row beyond the sequence length, if readers cut files into rows of equal length
    loss: bool = False  # if it can say which ids are targets
    pairs: bool = False  # if it has columns for source and target
    domains: bool = False  # if it has a column for the source of an item
    bounded: bool = False  # if its readers find the end of documents by <eos>
    index: Callable[[Sequence[Entry]], Mapping[str, bytes]] | None = None

    def choose_dtype(self, name: str, vocab_size: int, wanted: str | None) -> str:
        """Choose the type of ids for a vocabulary, whose size is the largest id + 1; ``wanted`` is the user's."""
        fitting = [dtype for dtype, most in self.dtypes.items() if vocab_size <= most]
        if wanted is None:
            if not fitting:
                raise FarspanError(f"--to {name}: cannot hold a vocabulary of {vocab_size:,} ids; give another format")
            return fitting[0]
        if wanted not in self.dtypes:
            raise FarspanError(
                f"--dtype {wanted}: files of {name} have {' or '.join(self.dtypes)}; give one of these, or leave it out"
            )
        if vocab_size - 1 > np.iinfo(wanted).max:
            raise FarspanError(f"--dtype {wanted}: cannot hold a vocabulary of {vocab_size:,} ids; leave --dtype out")
        return wanted
