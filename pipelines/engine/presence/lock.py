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
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress

from corpora.errors import FarspanError, from_os_error
from corpora.reporting import note
from corpora.storage import files
from corpora.storage.files import is_local
from corpora.storage.manifest_file import NAME
from corpora.storage.stores.client_errors import Unsupported
from pipelines.engine.paths import claims_folder
from pipelines.engine.presence.claims import Claims, next_generation
from pipelines.engine.presence.identity import DRIVER, LAUNCHER, Identity
from pipelines.engine.presence.lease import LEASE
from pipelines.engine.presence.member import Member

_LOCK = "lock"
_NO_LOCKS = (errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK)  # of file systems that leave it to the lease
_LOOKS = 1.0  # seconds between two checks of a process that may be dead
_held: set[tuple[int, str]] = set()  # (thread, folder) of the locks of this process


@contextmanager
def locked(folder: str, lease: float = LEASE) -> Iterator[None]:
    """Lock ``folder`` for this thread, creating it if necessary; the lock ends with the process at the latest.

    A thread may lock a folder that it holds already: a command does before it plans a job, and the job again. A folder
    that was made for the lock and is empty at the end is removed, as are folders above it. In a finished artefact
    nothing is written.

    Args:
        lease: seconds without a sign of life, after which processes on other machines take this one for dead.

    Raises:
        FarspanError: another process or thread holds it, or it cannot be made.
    """
    _refuse_address(folder)
    key = (threading.get_ident(), os.path.realpath(folder) if is_local(folder) else folder.rstrip("/"))
    if key in _held:
        yield
        return
    with ExitStack() as stack:
        if is_local(folder):
            stack.enter_context(_locked_here(folder))
        if not files.exists(os.path.join(folder, NAME)):
            stack.enter_context(_locked_everywhere(folder, lease))
        _held.add(key)
        try:
            yield
        finally:
            _held.remove(key)


@contextmanager
def shared(folder: str) -> Iterator[None]:
    """Work in a folder together with others that do the same: no process on this machine can lock it meanwhile."""
    _refuse_address(folder)
    with _locked_here(folder, fcntl.LOCK_SH) if is_local(folder) else nullcontext():
        yield


def _refuse_address(folder: str) -> None:
    """Refuse the address of a local folder, through which nothing can be locked.

    Raises:
        FarspanError: with its path.
    """
    if folder.startswith("file://"):
        raise FarspanError(f"--output {folder}: give the path, {folder.removeprefix('file://')}")


def refuse_drivers(member: Member, folder: str) -> None:
    """Check that no process works in the folder alone.

    Raises:
        FarspanError: one does.
    """
    _settle(member, DRIVER, folder)


@contextmanager
def _locked_everywhere(folder: str, lease: float) -> Iterator[None]:
    """Hold the lock between machines."""
    try:
        member = Member(folder, Identity.own(DRIVER, lease)).__enter__()
    except Unsupported:
        yield
        return
    except OSError as error:
        if cured := from_os_error(error, folder):
            raise FarspanError(cured) from error
        raise
    try:
        claims = Claims(claims_folder(folder), member.identity.name)
        generation = _claim(member, claims, folder)
        try:
            _settle(member, LAUNCHER, folder)
            yield
        finally:
            if generation:
                with suppress(FarspanError, OSError):  # finished, or deleted
                    claims.give_back(_LOCK, generation)
    finally:
        member.disappear()


def _claim(member: Member, claims: Claims, folder: str) -> int | None:
    """Claim the lock and return the claim's generation; None on a store where nothing can be claimed."""
    while True:
        generation = claims.generations().get(_LOCK, 0)
        owner = claims.owner_of(_LOCK, generation) if generation else None
        if owner is not None:
            _settle(member, DRIVER, folder, owner)
        following = next_generation(generation, owner, dead=True)
        try:
            if following and claims.create(_LOCK, following):
                return following
        except Unsupported:
            _settle(member, DRIVER, folder)
            return None


def _settle(member: Member, kind: str, folder: str, owner: str | None = None) -> None:
    """Wait until other processes are known to be dead.

    Args:
        kind: of the processes.
        owner: the only one that counts.

    Raises:
        FarspanError: one gave a sign of life, or works on this machine.
    """
    member.look()
    since, noted = time.monotonic(), False
    while True:
        others = [other for other in member.others(kind) if owner in (None, other.name)]
        if not others and (owner is None or member.dead(owner)):
            return
        for other in others:
            if other.machine == member.identity.machine or member.beats(other.name, since):
                raise FarspanError(
                    f"{folder}: another farspan job works here ({other}); wait, or give another --output"
                )
        if not noted:
            lease = max((other.lease for other in others), default=member.identity.lease)
            who = others[0] if others else "a process"
            note(f"{folder}: waiting up to {lease:g} s to see whether {who} still works there")
            noted = True
        time.sleep(min(_LOOKS, member.identity.lease / 10))
        member.look()


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
