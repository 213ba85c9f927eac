"""Marking of errors that all processes of a run raise, so that each machine reports them once."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

_ALIKE = "raised alike by all processes of the run"


@contextmanager
def mark_raised_alike() -> Iterator[None]:
    """Mark errors raised inside the context as raised by all processes of the run."""
    try:
        yield
    except Exception as error:
        error.add_note(_ALIKE)
        raise


def is_reporter(error: BaseException, environment: Mapping[str, str] = os.environ) -> bool:
    """True if this process reports ``error``.

    An error that all processes raise is reported by the first process of each machine; any other error by the process
    that raises it.
    """
    return environment.get("LOCAL_RANK", "0") == "0" or _ALIKE not in getattr(error, "__notes__", ())
