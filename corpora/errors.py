"""``FarspanError``, the exception whose message is for users, and conversions of other exceptions to it."""

from __future__ import annotations

import difflib
import errno
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager


class FarspanError(ValueError):
    """An error that the user can fix: the message names the file, the record or field, the value and the cure."""


class StoreError(FarspanError):
    """An error of a store, a disk or the bytes of a file, which a later attempt or another machine may not meet."""


def one_line(error: BaseException) -> str:
    """Return a library's message without line breaks."""
    return " ".join(str(error).split())


def first_line(error: BaseException) -> str:
    """Return the first line of a library's message; the error's type if there is none."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


_MEMORY = ("out of memory", "can't allocate memory", "not enough memory", "can't start new thread")


def out_of_memory(error: BaseException) -> bool:
    """Return True if ``error`` reports memory that could not be allocated; libraries have their own words for it."""
    return isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError) and any(words in str(error).lower() for words in _MEMORY)
    )


def first_few(items: Sequence[str], count: int = 4) -> str:
    """Return the first ``count`` items and the number of those left out, on one line."""
    more = len(items) - count
    return "; ".join(items[:count]) + (f"; and {more:,} more" if more > 0 else "")


def nearest(word: str, known: Iterable[str]) -> str:
    """Return `` (did you mean 'WORD'?)`` with the nearest of the known words; empty if none is near."""
    close = difflib.get_close_matches(word, list(known), n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""


_NO_ROOM = "make room there, or choose a place with more"
_CURES = {
    errno.ENOSPC: _NO_ROOM,
    errno.EDQUOT: f"{_NO_ROOM}, or ask for a larger quota",
    errno.EFBIG: "choose a file system that takes larger files",
    errno.EROFS: "mount it for writing, or choose another place",
    errno.EACCES: "let this user read and write there",
    errno.EPERM: "let this user read and write there",
    errno.EIO: "the disk reports a hardware error: check it, or choose another",
    errno.ESTALE: "mount the file system again",
    errno.ENODEV: "mount the file system again",
    errno.EMFILE: "raise the limit of open files: ulimit -n",
    errno.ENFILE: "close other programs, or raise the limit of open files",
    errno.ENOENT: "it was deleted or moved: put it back",
    errno.ENOTDIR: "there is a file where a folder is needed: move it away",
    errno.EISDIR: "there is a folder where a file is needed: move it away",
}


def from_os_error(error: OSError, place: str) -> FarspanError | None:
    """Convert an operating-system error to one line with a cure; None if the user can do nothing about it."""
    cure = _CURES.get(error.errno or 0)
    return FarspanError(f"{error.filename or place}: {error.strerror}; {cure}") if cure else None


@contextmanager
def from_extra(name: str, need: str) -> Iterator[None]:
    """Explain a failed import of a library of the extra ``name`` inside the ``with`` block.

    ``need``: the task that needs it, for the message: ``"clustering documents"``.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        library = str(error.name).partition(".")[0]
        raise FarspanError(f"{need} needs {library}: pip install 'farspan[{name}]'") from error


_ALIKE = "raised alike by all processes of the run"


@contextmanager
def mark_raised_alike() -> Iterator[None]:
    """Mark errors raised inside the ``with`` block as raised by all processes of a distributed run."""
    try:
        yield
    except Exception as error:
        error.add_note(_ALIKE)
        raise


def is_reporter(error: BaseException, environment: Mapping[str, str] = os.environ) -> bool:
    """Return True if this process reports ``error``.

    An error that all processes raise is reported by the first process of each machine; any other error by the process
    that raises it.
    """
    return environment.get("LOCAL_RANK", "0") == "0" or _ALIKE not in getattr(error, "__notes__", ())
