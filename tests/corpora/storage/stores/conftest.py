"""Remote stores in memory."""

from __future__ import annotations

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem


class Attic(MemoryFileSystem):
    """``attic://``: a file shows what was written of it so far; listings are kept until they are forgotten."""

    protocol = "attic"
    store: dict = {}  # noqa: RUF012 (as its base class has it)
    pseudo_dirs = [""]  # noqa: RUF012 (as its base class has it)

    @classmethod
    def _strip_protocol(cls, path):
        return super()._strip_protocol(path.removeprefix("attic:/"))

    def _open(self, path, mode="rb", **options):
        file = super()._open(path, mode, **options)
        if mode == "wb" and "refused" in path:
            raise PermissionError("the attic is locked")
        return file


@pytest.fixture
def attic():
    """Make ``attic://`` known to fsspec."""
    fsspec.register_implementation("attic", Attic, clobber=True)


@pytest.fixture(params=["memory", "attic"])
def root(request, attic):
    """An empty folder on a remote store."""
    fsspec.filesystem(request.param).store.clear()
    return f"{request.param}://folder"
