"""Inputs: raw files under source names, with their read options."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from corpora.errors import FarspanError
from corpora.options import utf8
from corpora.printing import format_count
from corpora.readers import ReadOptions
from corpora.readers.formats.huggingface import data_files
from corpora.readers.load_dataset import find_split, is_data_set, parse_path
from corpora.readers.options import PAIRS_OF
from corpora.readers.selection import check_fields, formats_by_suffix, holds_records, state_of
from corpora.readers.streams import compression
from corpora.reporting import note
from corpora.storage import files
from corpora.storage.manifest_file import NAME
from corpora.storage.stores.local_disk import FoundFiles, files_below, files_matching
from pipelines.engine.artefacts import absolute


@dataclass(frozen=True)
class Input:
    """Raw files under one source name."""

    source: str  # first part of every document id
    root: str  # folder to which paths in ids are relative, so that ids stay the same if the folder moves
    paths: tuple[str, ...]  # sorted
    read: ReadOptions = field(default_factory=ReadOptions)  # equal for all inputs of one source
    repeated: int = 0  # links that were not followed, because their folder is read under another name

    @classmethod
    def parse(cls, text: str, read: ReadOptions = ReadOptions()) -> Input:  # noqa: B008 (frozen)
        """Find the files of ``[NAME=]PATTERN``, where PATTERN is a file, a folder or a glob on any file system.

        A PATTERN that begins with ``hf:`` names a data set; see ``corpora.readers.load_dataset``.
        """
        name, equals, pattern = text.partition("=")
        if not equals or "/" in name or os.path.exists(text):
            name, pattern = "", text
        if ":" in name:
            raise FarspanError(f"--input {text}: a source's name stands before the ':' of ids; leave ':' out of it")
        if is_data_set(pattern):
            split = find_split(pattern)
            return cls(name or split.source, split.root, (split.path,), read)
        pattern = absolute(utf8(pattern) if not files.is_local(pattern) else pattern).rstrip("/")
        root, matches = _search(pattern)
        visible = [path for path in matches.paths if path == pattern or not _hidden(path[len(root) :])]
        candidates = _without_card(data_files(visible))
        paths = candidates if candidates == [pattern] else [path for path in candidates if holds_records(path, read)]
        if candidates and not paths:
            format = str(read.format).removeprefix(PAIRS_OF)
            raise FarspanError(
                f"--input {text}: --format {format} reads none of its {format_count(len(candidates), 'file')}, such as "
                f"{candidates[0]}; give the files under the names that they are published with"
            )
        if matches.paths and not visible:
            raise FarspanError(
                f"--input {text}: all of its {format_count(len(matches.paths), 'file')}, such as {matches.paths[0]}, "
                "are hidden, because a name begins with '.' or '_'; rename them, or give one file by its full name"
            )
        if not paths:
            raise FarspanError(
                f"--input {text}: matches no file; give a file, a folder or a quoted glob, "
                "as NAME=PATTERN to name the source and as ./PATTERN if a file's name contains '='"
            )
        if hidden := sorted(set(matches.paths) - set(visible)):
            count = format_count(len(hidden), "hidden file")
            note(f"--input {text}: {count}, such as {hidden[0]}, left out: a name begins with '.' or '_'")
        repeated = sum(not _hidden(path[len(root) :]) for path in matches.repeated)
        stem = os.path.basename(root if "*" in pattern else pattern).split(".")[0]
        item = cls(utf8(name or stem.replace(":", "_") or "text"), root, tuple(paths), read, repeated)
        for path in paths:
            item.relative(path)  # refuses names that cannot be part of an id
        return item

    def relative(self, path: str) -> str:
        """Return the name of a file in ids: its path below the root, in UTF-8 for any locale."""
        name = path[len(self.root) :].lstrip("/")
        try:
            # names are bytes, which Python decodes by the locale; ids are always UTF-8
            return os.fsencode(name).decode() if files.is_local(self.root) else name.encode().decode()
        except UnicodeError as error:
            raise FarspanError(f"--input: {path!r} is not valid UTF-8, which ids need; rename the file") from error


def _search(pattern: str) -> tuple[str, FoundFiles]:
    """Find the files of a file name, folder or glob; also return their root."""
    if os.path.lexists(pattern):  # an existing path is not a glob, even with special characters
        if os.path.isdir(pattern):
            return pattern, files_below(pattern)
        try:
            files.size(pattern)
        except OSError as error:
            raise FarspanError(f"--input: {error}; give a file, a folder or a quoted glob") from error
        return os.path.dirname(pattern), FoundFiles([pattern])
    fixed = re.split(r"[*?\[]", pattern)[0]
    if files.is_local(pattern):
        return os.path.dirname(fixed), files_matching(pattern)
    paths = files.match(pattern) or files.walk(pattern)
    root = pattern if fixed == pattern and paths != [pattern] else os.path.dirname(fixed)
    return root, FoundFiles(paths)


def _without_card(paths: Sequence[str]) -> list[str]:
    """Leave out ``README.md``, which describes a data set, beside files that are not plain text."""
    records = [path for path in paths if os.path.basename(path) != "README.md"]
    suffixes = (os.path.splitext(path.removesuffix(f".{compression(path)}"))[1].lower() for path in records)
    return list(paths) if all(formats_by_suffix().get(suffix) == "text" for suffix in suffixes) else records


def _hidden(path: str) -> bool:
    """True if a part of a path below the root is hidden, as caches and logs are."""
    return any(part.startswith((".", "_")) for part in path.split("/"))


def every_file(inputs: Sequence[Input]) -> Iterator[tuple[str, str, str]]:
    """Yield (source, relative path, path) of every file, each once."""
    seen = set()
    for item in inputs:
        for path in item.paths:
            if (item.source, path) not in seen:
                seen.add((item.source, path))
                yield item.source, item.relative(path), path


def read_options(inputs: Sequence[Input]) -> dict[str, ReadOptions]:
    """Read options of each source, sorted by source."""
    reads: dict[str, ReadOptions] = {}
    for item in sorted(inputs, key=lambda item: item.source):
        if reads.setdefault(item.source, item.read) != item.read:
            raise FarspanError(
                f"source {item.source!r} has two different read options; give the inputs two source names"
            )
    return reads


def revisions_of(inputs: Sequence[Input]) -> dict[str, str]:
    """Data set of the hub -> the commit that is read."""
    splits = [parse_path(path) for item in inputs for path in item.paths if is_data_set(path)]
    return {split.name: split.revision for split in sorted(splits) if split.revision}


def refuse_equal_ids(inputs: Sequence[Input]) -> None:
    """Refuse different files that would give documents the same ids."""
    names: dict[tuple[str, str], str] = {}
    for source, name, path in every_file(inputs):
        other = names.setdefault((source, name), path)
        if other != path:
            raise FarspanError(
                f"{other} and {path} would give documents the same ids {source}:{name}:...; "
                "name the sources apart: --input NAME=PATTERN"
            )


def leave_out_output(inputs: Sequence[Input], folder: str) -> tuple[Input, ...]:
    """Leave out files in ``folder``, the output, where an earlier run of the same job may have left some."""
    kept = tuple(
        replace(item, paths=tuple(path for path in item.paths if not path.startswith(folder + "/"))) for item in inputs
    )
    for item in kept:
        for artefact in (os.path.dirname(path) for path in item.paths if os.path.basename(path) == NAME):
            if any(path.startswith(f"{artefact}/shards/") for path in item.paths):
                raise FarspanError(
                    f"--input {item.root}: {artefact} was written by a farspan job; keep outputs out of the input's "
                    "folder, or give a glob that leaves it out"
                )
    return kept


def repeated_links(inputs: Sequence[Input]) -> dict[str, int]:
    """Source -> links that were not followed, because their folder is read under another name."""
    repeated: Counter[str] = Counter()
    for item in inputs:
        repeated[item.source] += item.repeated
    return repeated


def check_first(item: Input) -> None:
    """Check the fields of an input's first readable file."""
    for path in item.paths:
        try:
            state_of(path)
        except OSError:
            continue  # its task will reject it
        check_fields(path, item.read)
        return
