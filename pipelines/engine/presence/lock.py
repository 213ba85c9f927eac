"""The lock of a process that works alone in a folder, where another job would delete its temporary files.

On this machine a lock of the operating system decides, which ends with the process. Between machines, and on object
stores, it is a claim with a lease: a process that gives no sign of life for as long loses it.
"""

from __future__ import annotations

import errno
import fcntl
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress

from corpora.errors import FarspanError, from_os_error
from corpora.reporting import note
from corpora.storage import files
from corpora.storage.files import is_local
from corpora.storage.manifest_file import NAME
from corpora.storage.stores.client_errors import Unsupported
from pipelines.engine.paths import claims_folder
from pipelines.engine.presence.claims import Claims, next_generation
from pipelines.engine.presence.identity import DRIVER, LAUNCHER, LEASE, Identity
from pipelines.engine.presence.member import Member

_LOCK = "lock"
_NO_LOCKS = (errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK)  # of file systems that leave it to the lease
_LOOKS = 1.0  # seconds between two checks of a process that may be dead
_held: dict[tuple[int, str], tuple[str, bytes]] = {}  # (thread, folder) of the locks of this process -> its claim


@contextmanager
def locked(folder: str, lease: float = LEASE) -> Iterator[None]:
    """Lock ``folder`` for this thread, creating it if necessary; the lock ends with the process at the latest.

    A thread may lock a folder that it holds already: a command does before it plans a job, and the job again. A folder
    that was made for the lock and is empty at the end is removed, as are folders above it. In a finished artefact
    nothing is written.

    Args:
        lease: seconds without a sign of life, after which processes on other machines take this one for dead.
    """
    _refuse_address(folder)
    key = _key(folder)
    if key in _held:
        yield
        return
    with ExitStack() as stack:
        if is_local(folder):
            stack.enter_context(_locked_here(folder))
        finished = files.exists(os.path.join(folder, NAME))
        _held[key] = ("", b"") if finished else stack.enter_context(_locked_everywhere(folder, lease))
        try:
            yield
        finally:
            del _held[key]


def _key(folder: str) -> tuple[int, str]:
    return threading.get_ident(), os.path.realpath(folder) if is_local(folder) else folder.rstrip("/")


@contextmanager
def shared(folder: str) -> Iterator[None]:
    """Work in a folder together with others that do the same: no process on this machine can lock it meanwhile."""
    _refuse_address(folder)
    with _locked_here(folder, fcntl.LOCK_SH) if is_local(folder) else nullcontext():
        yield


def _refuse_address(folder: str) -> None:
    """Refuse the address of a local folder, through which nothing can be locked."""
    if folder.startswith("file://"):
        raise FarspanError(f"--output {folder}: give the path, {folder.removeprefix('file://')}")


def refuse_drivers(member: Member, folder: str) -> None:
    """Check that no process works in the folder alone."""
    claims = Claims(claims_folder(folder), member.identity.name)
    if generation := claims.generations().get(_LOCK, 0):
        _settle(member, folder, lambda: [owner.name] if (owner := claims.owner_of(_LOCK, generation)) else [])


def lock_of(folder: str) -> tuple[str, bytes]:
    """Path and contents of the claim with which this thread has locked a folder; empty where nothing can be claimed.

    While the file has these contents, the lock is held, as workers on any machine can see.
    """
    return _held[_key(folder)]


@contextmanager
def _locked_everywhere(folder: str, lease: float) -> Iterator[tuple[str, bytes]]:
    """Hold the lock between machines, and yield ``lock_of``."""
    try:
        member = Member(folder, Identity.own(DRIVER, lease)).__enter__()
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
            _settle(member, folder, lambda owner=owner: [owner.name])  # type: ignore[misc]
        following = next_generation(generation, owner, dead=True)
        try:
            if following and claims.create(_LOCK, following):
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


@contextmanager
def _locked_here(folder: str, how: int = fcntl.LOCK_EX) -> Iterator[None]:
    """Hold the operating system's lock on a local folder, creating it if necessary."""
    made = list(_missing(os.path.realpath(folder)))
    handle = _open_locked(folder, how)
    try:
        yield
    finally:
        with suppress(OSError):  # not empty
            for path in made:
                os.rmdir(path)
        os.close(handle)


def _missing(folder: str) -> Iterator[str]:
    """``folder`` and the folders above it that do not exist, the lowest first."""
    while not os.path.lexists(folder):
        yield folder
        folder = os.path.dirname(folder)


def _open_locked(folder: str, how: int) -> int:
    while True:
        try:
            os.makedirs(folder, exist_ok=True)
            handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        except OSError as error:
            raise FarspanError(
                f"--output {folder}: cannot be used as a folder ({error.strerror}); give another"
            ) from error
        try:
            fcntl.flock(handle, how | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(handle), os.stat(folder)):
                return handle
        except BlockingIOError as error:
            os.close(handle)
            raise FarspanError(f"{folder}: another farspan job works here; wait, or give another --output") from error
        except FileNotFoundError:
            pass  # removed by the process that held it, after it was opened here
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                os.close(handle)
                raise
            return handle
        os.close(handle)
