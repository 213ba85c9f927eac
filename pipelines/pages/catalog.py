"""Artefacts and runs below folders: their states, sizes and ancestry, read from manifests and recipes alone."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from corpora.errors import FarspanError
from corpora.printing import printable
from corpora.storage.manifest_file import NAME, find_origin, manifest_sha256, read_manifest
from pipelines.engine.job import WORK
from pipelines.runs.logs import run_state
from pipelines.study.report import is_study
from trainer.checkpoint.run_files import RECIPE, STARTS, read_lines

VIEWED = ("corpus", "masks", "documents", "pairs", "predictions", "run")
"""Kinds of entries with a page of their own."""
_NOTES = {"masks": "objective", "corpus": "builder", "predictions": "split"}  # option that is shown beside each kind
_DEPTH = 6  # folders below one that was named


@dataclass(frozen=True)
class Entry:
    """An artefact or run."""

    name: str  # name in addresses
    title: str  # path below the folder that was named
    folder: str
    kind: str  # `run`, or the format of an artefact without `farspan.`
    state: str = "finished"  # of a run `running`, `finished` or `stopped`; of an artefact `finished`, or what is wrong
    rows: int | None = None  # totals of an artefact; None if it has none, and for a run
    tokens: int | None = None
    size: int | None = None  # bytes of its files
    parents: tuple[str, ...] = ()  # names of the entries that it was made from
    note: str = ""  # remark in one line


class Names:
    """Names in addresses: the folder's, with a number if another has the same."""

    def __init__(self) -> None:
        self._used = {"static", "runs"}

    def new(self, folder: str) -> str:
        plain = re.sub(r"[^\w.-]", "-", base_name(folder)) or "rows"
        name, number = plain, 2
        while name in self._used:
            name, number = f"{plain}-{number}", number + 1
        self._used.add(name)
        return name


def base_name(folder: str) -> str:
    """Last part of a folder's path, for display."""
    return printable(os.path.basename(folder.rstrip("/")) or folder)


def find_entries(folders: Sequence[str]) -> list[Entry]:
    """Find the artefacts and runs in folders, and which was made from which; FarspanError if a folder holds none."""
    names, described = Names(), []
    for top in folders:
        places = list(_find_places(top, 0))
        if not places:
            raise FarspanError(f"{top}: holds no artefact and no run; give a folder with some")
        for folder in places:
            title = os.path.relpath(folder, top) if folder != top else base_name(top)
            described.append(_describe(Entry(names.new(folder), printable(title), folder, "run")))
    known = _Known([entry for entry, _ in described])
    return [replace(entry, parents=known.parents(entry, facts)) for entry, facts in described]


def _find_places(folder: str, depth: int) -> Iterator[str]:
    """Folders of artefacts, also unfinished ones, and of runs; a folder inside of one is part of it."""
    marks = (NAME, RECIPE) if is_study(folder) else (NAME, RECIPE, WORK)
    if any(os.path.exists(os.path.join(folder, name)) for name in marks):
        yield folder
    elif depth < _DEPTH and os.path.isdir(folder):
        for inner in sorted(os.scandir(folder), key=lambda one: one.name):
            if inner.is_dir(follow_symlinks=False) and not inner.name.startswith(".") and inner.name != WORK:
                yield from _find_places(inner.path, depth + 1)


def _describe(entry: Entry) -> tuple[Entry, Any]:
    """An entry with its facts, and the values in which its parents are named."""
    folder = Path(entry.folder)
    if (folder / RECIPE).is_file():
        entry = replace(entry, size=sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()))
        starts = [str(start.get("recipe", "")) for start in read_lines(folder / STARTS)]
        entry = replace(entry, note=starts[-1] if starts else "")
        try:
            return replace(entry, state=run_state(folder)), json.loads((folder / RECIPE).read_bytes())
        except ValueError:
            return replace(entry, state="damaged recipe"), None
    if not (folder / NAME).is_file():
        return replace(entry, kind="job", state="unfinished"), None
    try:
        manifest = read_manifest(entry.folder)
    except FarspanError as error:
        if (folder / "model.safetensors").is_file():
            return replace(entry, kind="model", size=sum(path.stat().st_size for path in folder.iterdir())), None
        return replace(entry, kind="artefact", state="unreadable", note=str(error)), None
    kind, tokens = manifest.format.removeprefix("farspan."), manifest.totals.get("tokens")
    note = str(manifest.config.get(_NOTES.get(kind, ""), ""))
    entry = replace(entry, kind=kind, rows=manifest.rows, tokens=tokens, size=manifest.bytes, note=note)
    return entry, manifest.to_values()


class _Known:
    """Names of entries by what others call them: checksum of the manifest, path, or name of a model."""

    def __init__(self, entries: Sequence[Entry]) -> None:
        finished = [entry for entry in entries if (Path(entry.folder) / NAME).is_file()]
        digests = {entry.name: manifest_sha256(entry.folder) for entry in finished}
        copies = Counter(digests.values())  # equal artefacts are told apart by their paths
        self._names = {digest: name for name, digest in digests.items() if copies[digest] == 1}
        self._names |= {os.path.realpath(entry.folder): entry.name for entry in entries}
        self._runs = {base_name(entry.folder): entry.name for entry in entries if entry.kind == "run"}

    def parents(self, entry: Entry, facts: Any) -> tuple[str, ...]:
        names = dict.fromkeys(self._names.get(text, "") for text in self._spell(entry, facts))
        if entry.kind == "predictions" and isinstance(facts, Mapping):
            model = facts["config"].get("model", {})  # by the name of its folder: a run, or a folder with a model
            names[self._runs.get(base_name(str(model.get("run") or model.get("folder", ""))), "")] = None
        return tuple(name for name in names if name not in ("", entry.name))

    def _spell(self, entry: Entry, facts: Any) -> Iterator[str]:
        """Checksums and real paths among the texts in the values of a manifest or recipe."""
        for text in _texts(facts):
            yield text
            if entry.kind == "run":
                yield os.path.realpath(text)
        for role in ("parent", "neighbours"):
            try:
                path = find_origin(entry.folder, role)
            except FarspanError:
                continue
            if path:
                yield os.path.realpath(path)


def _texts(values: Any) -> Iterator[str]:
    if isinstance(values, str):
        yield values
    elif isinstance(values, Mapping | list | tuple):
        for value in values.values() if isinstance(values, Mapping) else values:
            yield from _texts(value)
