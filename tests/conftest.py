"""Settings of the whole suite: no test depends on time, and hypothesis tries the same examples every time."""

import os
from collections.abc import Iterator

import pytest
from hypothesis import settings

from tests.third_party import install_farspan_lead

# before torch and numpy are loaded, and for child processes: threads of tests side by side would wait for each other
os.environ.setdefault("OMP_NUM_THREADS", "1")

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
