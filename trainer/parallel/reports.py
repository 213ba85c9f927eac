"""Errors that all processes of a run raise alike, and the processes that report them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

_ALIKE = "raised alike by all processes of the run"


@contextmanager
def raised_alike() -> Iterator[None]:
    """Mark errors raised inside as ones that all processes of the run raise, so that they are reported once."""
    try:
        yield
    except Exception as error:
        error.add_note(_ALIKE)
        raise


def is_reporter(error: BaseException, environment: Mapping[str, str] = os.environ) -> bool:
    """True if this process reports ``error``.

    An error that all processes raise alike is reported by the first process of each machine, any other error and one of
    a process that was not started with others by the process that raises it.
    """
    return environment.get("LOCAL_RANK", "0") == "0" or _ALIKE not in getattr(error, "__notes__", ())
