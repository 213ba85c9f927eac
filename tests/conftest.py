"""Settings of the whole suite: no test depends on time, and hypothesis tries the same examples every time."""

import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from corpora.compiled import Kernel
from corpora.reporting import Silence
from tests.clock import Clock
from tests.third_party import install_farspan_lead

if TYPE_CHECKING:
    from tests.object_store import Store

# before torch and numpy are loaded, and for child processes: threads of tests side by side would wait for each other
os.environ.setdefault("OMP_NUM_THREADS", "1")

# tests fork processes after others have started gRPC; its handlers of forks can abort these, and none of them uses it
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

# compiled sources are kept beside them, as compiled kernels are: else each worker and child process compiles them again
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

os.environ.setdefault("FARSPAN_STORE_PATIENCE", "2")  # seconds: most faults of stores in tests do not pass

Kernel.plain_left = 0  # the tests' little data goes through compiled kernels, as much data does

# no test sees lines that depend on the machine's load, or on kernels that an earlier one has compiled
Silence.period = 1e6
Kernel.noted = True

settings.register_profile("farspan", deadline=None, derandomize=True, max_examples=25)
settings.register_profile("thorough", deadline=None, max_examples=500)  # pytest --hypothesis-profile thorough
settings.load_profile("farspan")


@pytest.fixture(scope="module")
def farspan_lead(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    """The third-party package is installed, here and in processes that inherit ``PYTHONPATH``; its paths."""
    paths = install_farspan_lead(tmp_path_factory.mktemp("site"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join([*paths, *filter(None, [os.environ.get("PYTHONPATH")])]))
        for path in reversed(paths):
            patch.syspath_prepend(path)
        yield paths


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(autouse=True, scope="session")
def _no_fsync() -> Iterator[None]:
    """No file waits for the disk: who kills a process cuts no power, and tests of the order of writes see their own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield


@pytest.fixture(autouse=True)
def _memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """``memory://``, an object store in this process, empty at the start of each test."""
    from corpora.storage.stores import connect

    stores: dict[str, object] = {}

    def open_memory(root: str, *_: object) -> object:
        from obstore.store import MemoryStore

        return stores.setdefault(root, MemoryStore())

    monkeypatch.setitem(connect.CLIENTS, "memory", open_memory)
    connect._open.cache_clear()


@pytest.fixture(scope="session")
def _store() -> Iterator["Store"]:
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("AWS_")]:
            patch.delenv(name)
        patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        patch.setenv("AWS_CONFIG_FILE", os.devnull)
        patch.setenv("AWS_SHARED_CREDENTIALS_FILE", os.devnull)
        patch.setenv("NO_PROXY", "127.0.0.1")
        from tests.object_store import Store

        store = Store()
        yield store
        store.stop()


@pytest.fixture
def store(_store: "Store") -> Iterator["Store"]:
    """The store, reached by this process's file systems; what it was asked before is forgotten."""
    from corpora.storage.stores import connect

    connect.use_s3_settings(_store.settings)
    _store.requests.clear()
    yield _store
    _store.unavailable = 0
    connect.use_s3_settings({})


@pytest.fixture
def bucket(store: "Store", request: pytest.FixtureRequest) -> Iterator[str]:
    """``s3://NAME``, empty."""
    from corpora.storage import files
    from corpora.storage.stores import connect

    place = store.make_bucket("bucket")
    yield place
    connect.use_s3_settings(store.settings)
    files.delete(files.walk(place))
