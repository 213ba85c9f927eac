"""The lock of a process that works alone in a folder, where another job would delete its temporary files.

It is a claim with a lease. One of a process of this machine ends with the process; one of another machine, once that
gives no sign of life for as long.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from functools import partial

from corpora.errors import FarspanError, from_os_error
from corpora.reporting import note
from corpora.storage.files import is_local
from corpora.storage.manifest_file import manifest_path
from corpora.storage.stores.client_errors import Unsupported
from pipelines.engine.claims import Claims, next_generation
from pipelines.engine.job import claims_folder
from pipelines.engine.members import DRIVER, LAUNCHER, Identity, Member
from pipelines.engine.options import LEASE

_LOCK = "lock"
_LOOKS = 1.0  # seconds between two checks of a process that may be dead
_held: dict[tuple[int, str], tuple[str, bytes]] = {}  # (thread, folder) of the locks of this process -> its claim


@contextmanager
def locked(folder: str, lease: float = LEASE) -> Iterator[None]:
    """Lock ``folder`` for this thread, creating it if necessary; the lock ends with the process at the latest.

    A thread may lock a folder that it holds already: a command does before it plans a job, and the job again. In a
    finished artefact nothing is written.
    """
    key = _key(folder)
    if key in _held:
        yield
        return
    with opened(folder):
        finished = manifest_path(folder)
        with nullcontext(("", b"")) if finished else _claimed(folder, lease) as claim:
            _held[key] = claim
            try:
                yield
            finally:
                del _held[key]


def _key(folder: str) -> tuple[int, str]:
    return threading.get_ident(), os.path.realpath(folder) if is_local(folder) else folder.rstrip("/")


@contextmanager
def opened(folder: str) -> Iterator[None]:
    """Create ``folder``; remove it in the end if it was made here and is empty, as are folders made above it."""
    if folder.startswith("file://"):  # nothing can be locked through it
        raise FarspanError(f"--output {folder}: give the path, {folder.removeprefix('file://')}")
    missing = list(_missing(os.path.realpath(folder))) if is_local(folder) else []
    try:
        if is_local(folder):
            os.makedirs(folder, exist_ok=True)
    except OSError as error:
        raise FarspanError(f"--output {folder}: cannot be used as a folder ({error.strerror}); give another") from error
    try:
        yield
    finally:
        with suppress(OSError):  # not empty
            for path in missing:
                os.rmdir(path)


def _missing(folder: str) -> Iterator[str]:
    """Yield ``folder`` and the folders above it that do not exist, the lowest first."""
    while not os.path.lexists(folder):
        yield folder
        folder = os.path.dirname(folder)


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
        member.disappear()


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
