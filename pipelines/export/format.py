"""``Format``, the description of a file format, and ``Part``, the files of one task."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from corpora.errors import FarspanError
from corpora.storage import files
from corpora.storage.files import CountingHash
from corpora.storage.manifest import FileInfo
from pipelines.export.items import Items

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
