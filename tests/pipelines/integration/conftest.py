"""Raw text and its artefacts, on local disk and in a store."""

import sys

import pytest

from pipelines.cli import main
from tests.pipelines.engine.jobs import write_texts
from tests.pipelines.integration.stores import chain
from tests.vectors import copy


@pytest.fixture(scope="session")
def local(tmp_path_factory):
    """Raw text, a tokenizer, and what the jobs make of them on local disk."""
    folder = tmp_path_factory.mktemp("local")
    write_texts(folder, ("a.jsonl", "b.jsonl", "more/c.jsonl"), 120)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pipelines.cli.leave", sys.exit)
        for command in chain(str(folder), str(folder / "tokenizer")):
            main(command)
    return str(folder)


@pytest.fixture
def raw(bucket, local):
    """The raw text in the bucket."""
    copy(f"{local}/raw", f"{bucket}/raw")
    return bucket
