"""Remote stores in memory: an object store, and one of fsspec's, which can only be read."""

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem


class Attic(MemoryFileSystem):
    """``attic://``, which keeps its listings until they are forgotten."""

    protocol = "attic"
    store: dict = {}  # noqa: RUF012 (as its base class has it)
    pseudo_dirs = [""]  # noqa: RUF012 (as its base class has it)

    @classmethod
    def _strip_protocol(cls, path):
        return super()._strip_protocol(path.removeprefix("attic:/"))

    def _open(self, path, mode="rb", **options):
        if mode == "rb" and "refused" in path:
            raise PermissionError("the attic is locked")
        return super()._open(path, mode, **options)


@pytest.fixture
def attic():
    """``attic://``, empty; write to it with ``pipe``."""
    fsspec.register_implementation("attic", Attic, clobber=True)
    system = fsspec.filesystem("attic")
    system.store.clear()
    return system
