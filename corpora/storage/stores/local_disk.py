"""Files on this machine's disk: written atomically, only regular files opened, and searches that follow links.

A search reads a folder that is reached a second time, by a circular link or by two links, only once. The name under
which it is read depends on names alone: real folders come before links, and links are in the order of their paths.
"""

from __future__ import annotations

import errno
import filecmp
import fnmatch
import heapq
import os
import re
import stat
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import BinaryIO, NamedTuple

from corpora.errors import FarspanError

_MARK = ".tmp-"  # in temporary names of files and folders that are being written
_MAGIC = re.compile(r"[*?\[]")
_NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)  # of file systems without hard links


class DanglingLink(FileNotFoundError):
    """A symbolic link whose target does not exist, or that leads back to itself."""


class NotAFile(OSError):
    """A pipe, socket or device, which has no size and may block a reader forever."""


class FileState(NamedTuple):
    """State of a file, by which a change is noticed: its size in bytes, and two texts.

    ``version`` changes when the file is written to, and back with its former contents; ``instance`` also changes when
    the file is replaced by an equal one.
    """

    size: int
    version: str
    instance: str = ""


class LocalDisk:
    """The operations of ``corpora.storage.files`` for a plain path."""

    def open(self, path: str) -> BinaryIO:
        return open(path, "rb", opener=_open_regular)

    @contextmanager
    def create(self, path: str, taken: Callable[[], None] | None = None) -> Iterator[BinaryIO]:
        """Write to a temporary name, fsync, rename; with ``taken``, link instead, because a link replaces nothing.

        A stream is written to as it is: a file of its name would take its place.
        """
        if _is_stream(path):
            with open(path, "ab") as file:
                yield file
            return
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        temporary = temporary_name(path)
        try:
            with open(temporary, "wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            if taken is None or not _link_unless_equal(temporary, path, taken):
                os.replace(temporary, path)
        except OSError as error:
            if error.errno and error.filename in (None, temporary):  # the error of a full disk names no file
                raise OSError(error.errno, error.strerror, path) from error
            raise
        finally:
            self.delete([temporary])

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def size(self, path: str) -> int:
        return self.state(path).size

    def state(self, path: str) -> FileState:
        try:
            status = os.stat(path)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ELOOP) and os.path.islink(path):
                raise DanglingLink(f"{path}: a link to {os.readlink(path)!r}, which does not exist") from error
            raise
        _check_regular(path, status.st_mode)
        # file systems without a device of their own, as over networks, may give a file another number at any time
        inode = status.st_ino if os.major(status.st_dev) else 0
        return FileState(status.st_size, str(status.st_mtime_ns), str(inode))

    def match(self, pattern: str) -> list[str]:
        return files_matching(os.path.abspath(pattern)).paths

    def walk(self, folder: str) -> list[str]:
        return sorted(os.path.join(top, name) for top, _, names in os.walk(folder) for name in names)

    def delete(self, paths: list[str]) -> None:
        for path in paths:
            with suppress(FileNotFoundError):
                os.remove(path)

    def names(self, folder: str) -> list[str]:
        try:
            with os.scandir(folder) as entries:
                return sorted(entry.name for entry in entries if entry.is_file(follow_symlinks=False))
        except FileNotFoundError:
            return []

    def create_new(self, path: str, data: bytes) -> bool:
        try:
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        except FileExistsError:
            return False
        with open(handle, "wb") as file:
            file.write(data)
        return True

    def renew(self, path: str, data: bytes) -> bool:
        try:
            with open(path, "r+b") as file:  # in place: a temporary file, synchronized to disk, would take long
                file.write(data)
        except FileNotFoundError:
            return False
        return True


def _is_stream(path: str) -> bool:
    """Return True for a pipe or device, and for the name of a file that this process has open, e.g. /dev/stdout."""
    path = os.path.abspath(path)
    if path in ("/dev/stdout", "/dev/stderr") or path.startswith(("/dev/fd/", "/proc/self/fd/")):
        return True
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISCHR(mode)


def _link_unless_equal(temporary: str, path: str, taken: Callable[[], None]) -> bool:
    """Link a temporary file to ``path`` unless an equal file is there; False if the caller must rename instead."""
    try:
        os.link(temporary, path)
    except FileExistsError:
        if not filecmp.cmp(temporary, path, shallow=False):
            taken()
            return False
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        return False
    return True


def _open_regular(path: str, flags: int) -> int:
    number = os.open(path, flags | os.O_NONBLOCK)  # otherwise opening a pipe would wait for a writer
    try:
        _check_regular(path, os.fstat(number).st_mode)
    except BaseException:
        os.close(number)
        raise
    return number


def _check_regular(path: str, mode: int) -> None:
    kinds = {
        stat.S_IFIFO: "a named pipe",
        stat.S_IFSOCK: "a socket",
        stat.S_IFCHR: "a device",
        stat.S_IFBLK: "a device",
        stat.S_IFDIR: "a folder",
    }
    if kind := kinds.get(stat.S_IFMT(mode)):
        error = NotAFile(f"{path}: {kind}, not a regular file")
        error.strerror = f"{kind}, not a regular file"  # for messages that already name the file
        raise error


def temporary_name(path: str) -> str:
    """Return a name beside ``path`` that no other writer uses."""
    return f"{path}{_MARK}{uuid.uuid4().hex[:12]}"


def is_temporary(path: str) -> bool:
    """Return True for a name made by ``temporary_name``."""
    return _MARK in os.path.basename(path)


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
