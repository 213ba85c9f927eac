"""A sound corpus, and copies of it that tests may damage."""

import shutil

import pytest

from tests.artefacts import make_corpus


@pytest.fixture(scope="session")
def sound(tmp_path_factory):
    """Folder of a corpus of two shards; nobody changes it."""
    return make_corpus(str(tmp_path_factory.mktemp("sound") / "corpus"))


@pytest.fixture
def corpus(sound, tmp_path):
    """A copy of the sound corpus."""
    return shutil.copytree(sound, str(tmp_path / "corpus"))
