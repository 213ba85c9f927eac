"""Streaming of data sets that Hugging Face's ``datasets`` opens.

Their inputs are called ``hf:NAME[@REVISION][:CONFIG[:SPLIT]]``. NAME is a data set of the hub, a folder that
``load_dataset`` opens, or one of its builders with a path for CONFIG (``hf:csv:/data/*.csv``). A split is read like a
file: its ranges are shards of the data set, and a record's place is ``SHARD.ROW``. The revision of a data set of the
hub is resolved once, when the job is planned. Code of a data set never runs: ``datasets`` 4 removed that.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from itertools import pairwise
from socket import gaierror
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from corpora.errors import FarspanError, nearest
from corpora.readers import columns
from corpora.readers.blocks import BlockBuilder, Reader
from corpora.readers.records import Cut, DamagedFile, Range, group
from corpora.storage.stores.connect import require_hub

if TYPE_CHECKING:
    from datasets import DatasetBuilder, IterableDataset

PREFIX = "hf:"
_LOCAL = ("/", "./", "../", "~/")  # beginnings of a folder's name, which no data set of the hub has
_MOST_ROWS = 256
_CLIENTS = ("aiohttp", "httpcore", "httpx", "huggingface_hub", "requests", "urllib3")  # prefixes of module names


class Split(NamedTuple):
    """A split of a data set."""

    name: str  # on the hub, of a folder, or of a builder
    files: str  # glob of the files of a builder; empty otherwise
    revision: str  # commit of a data set of the hub; empty otherwise
    config: str  # configuration, also called subset
    split: str

    @property
    def path(self) -> str:
        """The split as the path of a ``Range``; ``parse_path`` parses it."""
        return f"{self.root}{self.config}/{self.split}"

    @property
    def root(self) -> str:
        """The part of ``path`` that ids leave out."""
        revision = self.revision and f"@{self.revision}"
        return f"{PREFIX}{self.name}{revision}:" + (self.files and f"{self.files}:")

    @property
    def source(self) -> str:
        """Default name of the source."""
        return os.path.basename((self.files and os.path.dirname(self.files)) or self.name)


def is_data_set(path: str) -> bool:
    """Return True for an input of this kind, as typed or as ``Split.path``."""
    return path.startswith(PREFIX) and not path.startswith("hf://")


def find_split(text: str) -> Split:
    """Find the split that ``hf:NAME[@REVISION][:CONFIG[:SPLIT]]`` names, with the commit of a data set of the hub."""
    name, _, rest = text.removeprefix(PREFIX).partition(":")
    config, _, split = rest.partition(":")
    revision = files = ""
    with _explain_errors(text):
        if name.startswith(_LOCAL):
            name = os.path.abspath(os.path.expanduser(name))
        elif _is_builder(name):
            files, config = os.path.abspath(config) if config and "://" not in config else config, ""
            if not files:
                raise FarspanError(f"--input {text}: name the files too, as in hf:{name}:'folder/*'")
        else:
            name, _, revision = name.partition("@")
            if os.path.isdir(name):  # which `datasets` would open in place of the data set
                raise FarspanError(
                    f"--input {text}: names a data set of the hub, and a folder here; give hf:./{name} for the folder, "
                    "or work in another folder"
                )
            require_hub(f"--input {text}")
            revision = _commit(name, revision)
        builder = _builder(Split(name, files, revision, config, split))
        streams = builder.as_streaming_dataset()
    return Split(name, files, revision, builder.config.name, _choose(text, split, list(streams)))


def _choose(text: str, split: str, splits: list[str]) -> str:
    if split in splits:
        return split
    if not split and len(splits) == 1:
        return splits[0]
    known = ", ".join(splits)
    if not split:
        raise FarspanError(f"--input {text}: name one of its splits: {known}; as in hf:NAME:CONFIG:{splits[0]}")
    raise FarspanError(f"--input {text}: no split {split!r}{nearest(split, splits)}; its splits: {known}")


def parse_path(path: str) -> Split:
    """Parse ``Split.path``."""
    root, _, place = path.removeprefix(PREFIX).rpartition(":")
    config, _, split = place.partition("/")
    name, _, files = root.partition(":")
    match = re.fullmatch(r"(.*)@([0-9a-f]{40})", name)
    return Split(*((match[1], files, match[2]) if match else (name, files, "")), config, split)


def size(path: str) -> int:
    """Return the bytes of a split's files; if these are unknown, the bytes of its table, or 0."""
    return sum(_open_split(path)[1])


def plan(path: str, target_bytes: int) -> list[Cut]:
    """Split a data set between its own shards."""
    return group(_open_split(path)[1], target_bytes)


def read(piece: Range, block: BlockBuilder) -> Iterator[int]:
    """Read the shards of a range; each row is a record.

    Damage ends its own shard only.
    """
    stream, sizes = _open_split(piece.path)
    if sum(sizes) != piece.size:
        return  # the files changed since the job began; the caller checks that and ends the job
    done = 0
    for index in range(piece.start, piece.stop):
        row = 0
        block.prefix = f"{index}."
        try:
            for batch, schema in _batches(stream.shard(len(sizes), index), block):
                columns.check_batch(batch)
                for rows in columns.add_rows(block, batch, row, schema):
                    yield done + sizes[index] * rows // (2 * len(batch))  # the rows of a shard are unknown
                row += len(batch)
        except Exception as error:
            if isinstance(error, FarspanError) or is_network_error(error):
                raise _explain(piece.path, error) from error
            block.damage(DamagedFile(error, row), sizes[index])
        block.prefix = ""
        done += sizes[index]
        yield done


def fields(path: str) -> dict[str, int]:
    """Map the columns of the first row to the characters of text in each."""
    with _explain_errors(path):
        row: dict[str, Any] = next(iter(_open_split(path)[0]), {})
    return {name: len(value) if isinstance(value, str) else 0 for name, value in row.items()}


def _batches(stream: IterableDataset, block: BlockBuilder) -> Iterator[tuple[pa.RecordBatch, pa.Schema]]:
    """Yield the wanted columns of a shard in small batches, each with the schema of all columns."""
    if stream.features is not None:  # so that Parquet reads no other column
        schema = stream.features.arrow_schema
        stream = stream.select_columns(columns.wanted_columns(schema, block.options))
    for table in stream.with_format("arrow").iter(_MOST_ROWS):
        names = columns.wanted_columns(table.schema, block.options)
        for batch in table.select(names).to_batches():
            yield batch, table.schema if stream.features is None else schema


def _open_split(path: str) -> tuple[IterableDataset, list[int]]:
    """Open a split: return its rows, and the bytes of each of its shards."""
    wanted = parse_path(path)
    return _open_commit(wanted) if wanted.revision else _open_commit.__wrapped__(wanted)  # only a commit never changes


@lru_cache(maxsize=4)
def _open_commit(wanted: Split) -> tuple[IterableDataset, list[int]]:
    from fsspec.core import url_to_fs

    with _explain_errors(wanted.path):
        builder = _builder(wanted)
        stream = builder.as_streaming_dataset(wanted.split)
        paths = (builder.config.data_files or {}).get(wanted.split, [])
        sizes = [size or 0 for size in url_to_fs(paths[0])[0].sizes(list(paths))] if paths else []
    shards = stream.num_shards
    if len(sizes) != shards:
        info = (builder.info.splits or {}).get(wanted.split)
        total = sum(sizes) or (info.num_bytes if info else 0) or 0
        edges = [total * index // shards for index in range(shards + 1)]
        sizes = [stop - start for start, stop in pairwise(edges)]
    return stream, sizes


def _builder(wanted: Split) -> DatasetBuilder:
    from datasets import load_dataset_builder

    options: dict[str, Any] = {"data_files": {wanted.split or "train": wanted.files}} if wanted.files else {}
    return load_dataset_builder(
        wanted.name, None if wanted.files else wanted.config or None, revision=wanted.revision or None, **options
    )


def _is_builder(name: str) -> bool:
    """Return True for the name of a builder that is part of ``datasets``, such as ``csv``."""
    from importlib.util import find_spec

    return name.isidentifier() and find_spec(f"datasets.packaged_modules.{name}") is not None


def _commit(name: str, revision: str) -> str:
    """Return the commit of a revision; of the newest one if ``revision`` is empty."""
    from huggingface_hub import HfApi

    return str(HfApi().dataset_info(name, revision=revision or None).sha)


@contextmanager
def _explain_errors(text: str) -> Iterator[None]:
    """Convert errors of ``datasets`` and of the hub to one line."""
    try:
        import datasets  # noqa: F401
    except ImportError as error:
        raise FarspanError(f"--input {text}: needs datasets; pip install 'farspan[datasets]'") from error
    try:
        yield
    except FarspanError:
        raise
    except Exception as error:
        raise _explain(text, error) from error


def _explain(text: str, error: Exception) -> FarspanError:
    if isinstance(error, FarspanError):
        return error
    reason = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
    name = text.removeprefix(PREFIX)
    if type(error).__name__ in ("RepositoryNotFoundError", "RevisionNotFoundError", "DatasetNotFoundError"):
        cure = f"no such data set, or a private one (`hf auth login`); give a folder as ./{name} if it is one"
    elif is_network_error(error) or (isinstance(error, OSError) and "ffline" in reason):
        cure = "the hub cannot be reached; run the command again, or download the data set and give its folder"
    else:
        cure = "see whether datasets.load_dataset opens it"
    return FarspanError(f"--input {text}: {reason.rstrip('.')}; {cure}")


def is_network_error(error: BaseException | None) -> bool:
    """Return True for errors of connections, or of libraries for them: these are not damage of the data."""
    while error is not None:
        if isinstance(error, ConnectionError | TimeoutError | gaierror) or type(error).__module__.startswith(_CLIENTS):
            return True
        error = error.__cause__
    return False


READER = Reader(plan, read, fields)
