"""Search for files below a folder or matching a glob; symbolic links are followed, and each folder is read once.

A folder that is reached a second time, by a circular link or by two links, is not read again. The name under which it
is read depends on names alone: real folders come before links, and links are in the order of their paths.
"""

from __future__ import annotations

import fnmatch
import heapq
import os
import re
from dataclasses import dataclass, field

from corpora.errors import FarspanError

_MAGIC = re.compile(r"[*?\[]")


@dataclass
class FoundFiles:
    """The result of a search, sorted.

    ``paths`` are everything found except folders: files, but also pipes and links whose targets do not exist.
    ``repeated`` are links and folders not read because they had been read under another name.
    """

    paths: list[str] = field(default_factory=list)
    repeated: list[str] = field(default_factory=list)


def files_below(folder: str) -> FoundFiles:
    """Find every file below a local folder."""
    return _search(folder, _Pattern(["**"], hidden=True))


def files_matching(pattern: str) -> FoundFiles:
    """Find the local files that match a glob (an absolute path), where ``**`` stands for any number of folders.

    As in a shell, a wildcard matches no name that begins with a dot unless its own part of the pattern does.
    """
    top = os.path.dirname(_MAGIC.split(pattern)[0])
    if not os.path.isdir(top):
        return FoundFiles()
    return _search(top, _Pattern(pattern[len(top) :].strip("/").split("/"), hidden=False))


class _Pattern:
    """A glob as a finite automaton over the parts of a path; a state is the set of pattern parts that may come next."""

    def __init__(self, parts: list[str], hidden: bool) -> None:
        self._parts = [None if part == "**" else re.compile(fnmatch.translate(part)).match for part in parts]
        self._dotted = [hidden or part.startswith(".") for part in parts]

    @property
    def start(self) -> frozenset[int]:
        return self._close({0})

    def enter(self, state: frozenset[int], name: str) -> frozenset[int]:
        """Return the state inside the folder ``name``; empty if nothing below it can match."""
        following: set[int] = set()
        for index in state:
            match = self._parts[index]
            if name.startswith(".") and not self._dotted[index]:
                continue
            if match is None:
                following.add(index)
            elif index + 1 < len(self._parts) and match(name):
                following.add(index + 1)
        return self._close(following)

    def matches(self, state: frozenset[int], name: str) -> bool:
        """Return True if a file ``name`` matches the end of the pattern."""
        last = len(self._parts) - 1
        if last not in state or (name.startswith(".") and not self._dotted[last]):
            return False
        match = self._parts[last]
        return match is None or match(name) is not None

    def _close(self, state: set[int]) -> frozenset[int]:
        # ** may also stand for no folder at all
        for index in range(len(self._parts) - 1):
            if index in state and self._parts[index] is None:
                state.add(index + 1)
        return frozenset(state)


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False  # a circular link, or one into an unreadable folder: opening it will raise


def _search(top: str, pattern: _Pattern) -> FoundFiles:
    result = FoundFiles()
    named: dict[tuple[int, int, str], str] = {}  # folder and name -> path, as a pattern may lead to a folder twice
    entered: set[tuple[int, int, frozenset[int]]] = set()
    # (reached by a link, path, state): real folders first, then links by path
    waiting = [(False, top, pattern.start)]
    while waiting:
        linked, folder, state = heapq.heappop(waiting)
        try:
            status = os.stat(folder)
            place = (status.st_dev, status.st_ino, state)
            if place in entered:
                result.repeated.append(folder)
                continue
            entered.add(place)
            with os.scandir(folder) as listing:
                entries = list(listing)
        except OSError as error:
            raise FarspanError(
                f"--input: {folder} cannot be listed ({error.strerror}); make it readable or leave it out"
            ) from error
        for entry in entries:
            path = os.path.join(folder, entry.name)
            if _is_folder(entry):
                inside = pattern.enter(state, entry.name)
                if inside:
                    heapq.heappush(waiting, (linked or entry.is_symlink(), path, inside))
            elif pattern.matches(state, entry.name) and named.setdefault((*place[:2], entry.name), path) == path:
                result.paths.append(path)
    result.paths.sort()
    result.repeated.sort()
    return result
