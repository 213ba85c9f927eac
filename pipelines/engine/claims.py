"""Claims, files that exactly one process creates: of tasks, with their order, and of a folder by a process alone.

A claim is held by the process whose name its file holds, until it is given back (the file goes), the process has failed
(the file says so) or is dead; then the next generation of the claim may be created. So the generation counts the
processes that died or failed with it.

The lock of a folder is a claim with a lease: another job would delete the temporary files of the first. That of a
process of this machine ends with the process; that of another machine, once it gives no sign of life for as long.
"""

from __future__ import annotations

import math
import os
import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from corpora.errors import FarspanError, from_os_error
from corpora.reporting import note
from corpora.storage import files
from corpora.storage.manifest_file import manifest_path
from corpora.storage.stores.client_errors import Unsupported
from pipelines.engine.job import Task, claims_folder
from pipelines.engine.members import DRIVER, LAUNCHER, Identity, Member
from pipelines.engine.options import LEASE

_LISTED = 1000  # names that an object store lists per request
_READ = 50  # names of a local folder that are listed in the time of a claim
_LOCK = "lock"
_LOOKS = 1.0  # seconds between two checks of a process that may be dead
_held: dict[tuple[int, str], tuple[str, bytes]] = {}  # (thread, folder) of the locks of this process -> its claim


@dataclass(frozen=True)
class Owner:
    """The process that made a claim, and the message with which its attempt failed; empty while it works."""

    name: str
    failure: str = ""


@dataclass(frozen=True)
class Claims:
    """The claims of the process ``owner`` in one folder, which exists if it is local."""

    folder: str
    owner: str

    def create(self, name: str, generation: int = 1) -> bool:
        """Claim what has a name; False if another process was first.

        A store may create the file and lose its answer, so that a repeated request finds it there: its owner decides.
        """
        made = files.create_new(self._path(name, generation), self.owner.encode())
        return made or self.owner_of(name, generation) == Owner(self.owner)

    def owner_of(self, name: str, generation: int) -> Owner | None:
        """Return the process that made a claim; None if there is none (any more).

        A process that was killed between the creation of the file and its first byte leaves a name that no process has.
        """
        try:
            owner, _, failure = files.read_bytes(self._path(name, generation)).decode(errors="replace").partition("\n")
        except FileNotFoundError:
            return None
        return Owner(owner or f"?{name}.{generation}", failure)

    def fail(self, name: str, generation: int, message: bytes) -> None:
        """Pass a claim on to another process."""
        files.write_bytes(self._path(name, generation), self.owner.encode() + b"\n" + message)

    def give_back(self, name: str, generation: int) -> None:
        files.delete([self._path(name, generation)])

    def generations(self) -> dict[str, int]:
        """Name -> highest generation of its claims; other files are passed over."""
        newest: dict[str, int] = {}
        for file in files.names(self.folder):
            name, _, generation = file.rpartition(".")
            if name and generation.isdecimal():
                newest[name] = max(newest.get(name, 0), int(generation))
        return newest

    def _path(self, name: str, generation: int) -> str:
        return os.path.join(self.folder, f"{name}.{generation}")


def next_generation(generation: int, owner: Owner | None, dead: bool) -> int | None:
    """The generation of a claim that may be created now; None while its owner works.

    ``generation`` is the highest that was made, 0 for none; ``owner`` made it, None if it was given back.
    """
    if generation == 0:
        return 1
    if owner is None:
        return generation
    return generation + 1 if dead or owner.failure else None


def shuffle(tasks: Iterable[Task], process: str) -> list[Task]:
    """Return tasks from large to small, those that differ by less than a half in an order of each process."""
    ordered = sorted(tasks, key=lambda task: task.name)
    random.Random(process).shuffle(ordered)
    return sorted(ordered, key=lambda task: round(2 * math.log2(task.units)) if task.units > 0 else -1, reverse=True)


def listing_cost(files: int, *, local: bool) -> int:
    """Return the number of requests, or of failed claims on a local disk, that listing so many files is worth."""
    return 1 + files // (_READ if local else _LISTED)


def pause_after(waited: float, least: float, most: float = 10.0) -> float:
    """Seconds until the next look: a quarter of the time waited, so that a long wait costs few looks."""
    return min(max(least, waited / 4), most)


@contextmanager
def lock_folder(folder: str, lease: float = LEASE) -> Iterator[None]:
    """Lock ``folder`` for this thread, creating it if necessary; the lock ends with the process at the latest.

    A thread may lock a folder that it holds already: a command does before it plans a job, and the job again. In a
    finished artefact nothing is written.
    """
    key = _key(folder)
    if key in _held:
        yield
        return
    with create_folder(folder):
        finished = manifest_path(folder)
        with nullcontext(("", b"")) if finished else _claimed(folder, lease) as claim:
            _held[key] = claim
            try:
                yield
            finally:
                del _held[key]


def _key(folder: str) -> tuple[int, str]:
    return threading.get_ident(), os.path.realpath(folder) if files.is_local(folder) else folder.rstrip("/")


@contextmanager
def create_folder(folder: str) -> Iterator[None]:
    """Create ``folder``; remove it in the end if it was made here and is empty, as are folders made above it."""
    if folder.startswith("file://"):  # nothing can be locked through it
        raise FarspanError(f"--output {folder}: give the path, {folder.removeprefix('file://')}")
    missing: list[Path] = []  # the lowest first
    try:
        if files.is_local(folder):
            path = Path(os.path.realpath(folder))
            missing = [one for one in (path, *path.parents) if not os.path.lexists(one)]
            path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FarspanError(f"--output {folder}: cannot be used as a folder ({error.strerror}); give another") from error
    try:
        yield
    finally:
        with suppress(OSError):  # not empty
            for one in missing:
                one.rmdir()


def refuse_drivers(member: Member, folder: str) -> None:
    """Check that no process works in the folder alone."""
    claims = Claims(claims_folder(folder), member.identity.name)
    if generation := claims.generations().get(_LOCK, 0):
        _settle(member, folder, partial(_owner, claims, generation))


def _owner(claims: Claims, generation: int) -> list[str]:
    """Name of the process that holds the lock now; it may be read before it is written."""
    owner = claims.owner_of(_LOCK, generation)
    return [owner.name] if owner else []


def lock_of(folder: str) -> tuple[str, bytes]:
    """Path and contents of the claim with which this thread has locked a folder; empty where nothing can be claimed.

    While the file has these contents, the lock is held, as workers on any machine can see.
    """
    return _held[_key(folder)]


@contextmanager
def _claimed(folder: str, lease: float) -> Iterator[tuple[str, bytes]]:
    """Hold the claim, and yield ``lock_of``."""
    member = Member(folder, Identity.own(DRIVER, lease))
    try:
        member.__enter__()
    except OSError as error:
        if cured := from_os_error(error, folder):
            raise FarspanError(cured) from error
        raise
    claims = Claims(claims_folder(folder), member.identity.name)
    generation = None
    try:
        generation = _claim(member, claims, folder)
        _settle(member, folder, lambda: [other.name for other in member.others(LAUNCHER)])
        path = os.path.join(claims.folder, f"{_LOCK}.{generation}") if generation else ""
        yield path, member.identity.name.encode()
    finally:
        if generation:
            with suppress(FarspanError, OSError):  # finished, or deleted
                claims.give_back(_LOCK, generation)
        member.__exit__()


def _claim(member: Member, claims: Claims, folder: str) -> int | None:
    """Claim the lock and return the claim's generation; None on a store where nothing can be claimed."""
    while True:
        generation = claims.generations().get(_LOCK, 0)
        owner = claims.owner_of(_LOCK, generation) if generation else None
        if owner is not None:
            _settle(member, folder, partial(_owner, claims, generation))
            if claims.owner_of(_LOCK, generation) != owner:
                continue
        following = next_generation(generation, owner, dead=True)
        try:
            if following and claims.create(_LOCK, following):
                if claims.generations().get(_LOCK) != following:  # another process took over a later one meanwhile
                    claims.give_back(_LOCK, following)
                    continue
                if owner is not None:
                    claims.give_back(_LOCK, generation)  # so that the dead process's workers see that it has ended
                return following
        except Unsupported:
            _settle(member, folder, lambda: [other.name for other in member.others(DRIVER)])
            return None


def _settle(member: Member, folder: str, names: Callable[[], list[str]]) -> None:
    """Wait until other processes are known to be dead."""
    noted = False
    while others := [name for name in names() if not member.dead(name)]:
        for name in others:
            other = Identity.parse(name)
            if (other and other.machine == member.identity.machine) or member.beats(name):
                raise FarspanError(
                    f"{folder}: another farspan job works here ({other}); wait, or give another --output"
                )
        if not noted:
            other = Identity.parse(others[0]) or member.identity
            note(f"{folder}: waiting up to {other.lease:g} s to see whether {other} still works there")
            noted = True
        time.sleep(min(_LOOKS, member.identity.lease / 10))
