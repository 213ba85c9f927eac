"""The artefacts and runs that the pages show, opened when a page needs them."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from corpora.errors import FarspanError, nearest
from corpora.storage import files
from corpora.storage.manifest_file import NAME
from pipelines.engine.job import WORK
from pipelines.pages.catalog import VIEWED, Entry, find_entries
from pipelines.pages.options import Selection
from pipelines.pages.page import Subject
from pipelines.pages.subjects import is_run, open_subjects
from pipelines.pages.table import Table
from pipelines.runs.logs import Follower
from pipelines.study.report import is_study

_BESIDE = 4  # mask sets of a corpus, and predictions for the same pairs, that a page has beside each other


def spans_folders(options: Selection) -> bool:
    """True if the options name a folder of artefacts or runs, or a run without an update."""

    def is_folder(path: str) -> bool:
        if not files.is_local(path) or not os.path.isdir(path) or os.path.exists(os.path.join(path, NAME)):
            return False
        if is_run(path):
            return options.step is None
        return is_study(path) or not os.path.exists(os.path.join(path, WORK))

    return any(map(is_folder, options.artefact))


class Workspace:
    """Entries by name, their rows as subjects and tables, and the logs of runs."""

    def __init__(self, options: Selection) -> None:
        """Find what lies in the folders that ``options`` name."""
        self._options, self._opened = options, dict[str, Subject]()
        self.folders = options.artefact
        self.entries: dict[str, Entry] = {}
        self.refresh()
        self._update = lru_cache(maxsize=8)(self._open_update)
        self._follower = lru_cache(maxsize=None)(Follower)
        self._tables: dict[str, Table] = {}

    @classmethod
    def of(cls, subjects: Sequence[Subject]) -> Workspace:
        """Show subjects that are open."""
        self = cls(Selection(artefact=()))
        self._opened = {subject.name: subject for subject in subjects}
        for one in subjects:
            note = ", ".join([one.summary, *one.mask_sets])
            self.entries[one.name] = Entry(one.name, one.name, one.folder, one.kind, "", len(one), note=note)
        return self

    def refresh(self) -> None:
        """Look for artefacts and runs again."""
        if self.folders:
            self.entries = {entry.name: entry for entry in find_entries(self.folders)}

    def subject(self, name: str) -> Subject:
        """Return the rows of an artefact, or of the update that ``RUN-step-N`` names; KeyError for other names."""
        if name in self._opened:
            return self._opened[name]
        update = re.fullmatch(r"(.+)-step-(\d{1,12})", name)
        if name not in self.entries and update and update[1] in self.entries:
            return self._update(name, self.entries[update[1]].folder, int(update[2]))
        if name not in self.entries:
            self.refresh()  # it may have been made since
        entry = self.entries[name]
        if entry.kind not in VIEWED or entry.kind == "run":
            raise FarspanError(f"{entry.folder}: {entry.kind}, {entry.state}; its rows have no pages")
        (subject,) = open_subjects(self._select(entry))
        subject.name = name
        self._opened[name] = subject
        return subject

    def table(self, subject: Subject) -> Table:
        """Return the table of a subject, which stays in memory."""
        return self._tables.setdefault(subject.name, Table(subject))

    def _open_update(self, name: str, folder: str, step: int) -> Subject:
        (subject,) = open_subjects(Selection(artefact=(folder,), step=step))
        subject.name = name
        return subject

    def _select(self, entry: Entry) -> Selection:
        """What is opened for an entry, with its parents where they were found."""
        around = list(self.entries.values())
        parents = {one.kind: one.folder for one in around if one.name in entry.parents}
        chosen: dict[str, Any] = {"artefact": (entry.folder,)}
        if entry.kind == "predictions":
            answered = (entry.kind, entry.note, entry.parents[:1])
            others = [one for one in around if one is not entry and (one.kind, one.note, one.parents[:1]) == answered]
            chosen["artefact"] += tuple(one.folder for one in others[: _BESIDE - 1])
        if entry.kind in ("corpus", "masks"):
            chosen |= {name: getattr(self._options, name) for name in ("objective", "seed", "layout", "options")}
        if entry.kind == "masks":
            chosen["corpus"] = parents.get("corpus")
        if entry.kind == "corpus":
            beside = [one.folder for one in around if one.kind == "masks" and entry.name in one.parents]
            chosen |= {"masks": tuple(beside[:_BESIDE]), "neighbours": parents.get("neighbours")}
        if entry.kind in ("corpus", "pairs"):
            chosen["documents"] = parents.get("documents")
        return Selection(**chosen)

    def runs(self, names: Sequence[str] = ()) -> Mapping[str, Follower]:
        """Return the logs of runs by name; of all for no names."""
        known = {entry.name: entry for entry in self.entries.values() if entry.kind == "run"}
        for name in names:
            if name not in known:
                raise FarspanError(f"no run {name!r} here{nearest(name, known)}")
        return {name: self._follower(Path(known[name].folder)) for name in names or known}
