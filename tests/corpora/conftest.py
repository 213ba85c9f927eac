"""A small corpus, made once for all tests of this package."""

import pytest

from tests.artefacts import make_corpus


@pytest.fixture(scope="session")
def corpus(tmp_path_factory):
    """Folder of a sound corpus of three shards; nobody changes it."""
    return make_corpus(str(tmp_path_factory.mktemp("corpus") / "corpus"), shards=3)
