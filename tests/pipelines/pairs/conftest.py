"""SCROLLS-shaped files, their documents, and the pairs made of them."""

import pytest

from corpora.readers import ReadOptions
from tests.pipelines.documents.jobs import build as build_documents
from tests.pipelines.pairs.raw import build, write_scrolls


@pytest.fixture(scope="session")
def scrolls(tmp_path_factory):
    return str(write_scrolls(tmp_path_factory.mktemp("raw") / "scrolls"))


@pytest.fixture(scope="session")
def documents(scrolls, tokenizer, tmp_path_factory):
    folder = str(tmp_path_factory.mktemp("documents") / "documents")
    build_documents(scrolls, folder, tokenizer, read=ReadOptions(format="scrolls"), task_bytes=4_000)
    return folder


@pytest.fixture(scope="session")
def pairs(scrolls, documents, tmp_path_factory):
    folder = str(tmp_path_factory.mktemp("pairs") / "pairs")
    build(scrolls, documents, folder, task_bytes=4_000)
    return folder
