"""Errors of the stores' clients as one line that names the path and the cure."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from contextlib import contextmanager

from corpora.errors import FarspanError
from corpora.storage.stores import credentials, s3


@contextmanager
def explained(path: str) -> Iterator[None]:
    """Convert the many kinds of error of the clients inside the ``with`` block.

    Raises:
        FarspanError: the store refuses or does not answer, or a library is missing.
        FileNotFoundError: there is no such file.
        NotADirectoryError: as the client raised it.
    """
    try:
        yield
    except (FarspanError, NotADirectoryError):
        raise
    except ImportError as error:
        raise FarspanError(f"{path}: {error}") from error
    except FileNotFoundError as error:
        raise FileNotFoundError(f"{path}: no such file") from error
    except Exception as error:
        raise refusal(path, str(error) or type(error).__name__) from error


def refusal(path: str, reason: str) -> FarspanError:
    """Return the error for a path that a store refuses, with advice chosen by words of the reason."""
    reason = reason.partition("dlopen(")[0]  # Arrow goes on with all the places where it looked for Java
    reason = " ".join(reason.split()).rstrip(".")
    reason = textwrap.shorten(reason, 500, placeholder=" ...")
    cure = s3.cure(reason) if path.startswith("s3://") else credentials.cure(path, reason)
    return FarspanError(f"{path}: {reason}; {cure or 'finished work is kept: try again'}")
