"""Documents opened for reading."""

import pickle
from dataclasses import replace
from pathlib import Path

import pytest

from corpora.errors import FarspanError
from corpora.schemas.documents import documents_schema, has_titles, open_documents
from tests.artefacts import all_rows, make_corpus, make_documents


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return Path(make_documents(str(tmp_path_factory.mktemp("documents") / "made")))


def test_rows_are_those_of_the_shards_in_the_order_asked(folder: Path):
    documents, rows = open_documents(folder), all_rows(folder)
    assert len(documents) == len(rows)
    asked = [len(rows) - 1, 0, 7, 0]
    taken = pickle.loads(pickle.dumps(documents)).take(asked)
    assert taken.schema == documents_schema(documents.manifest.tokenizer["vocab_size"])
    assert taken.to_pylist() == [rows[row] for row in asked]


def test_no_rows_are_an_empty_table(folder: Path):
    assert len(open_documents(folder).take([])) == 0


def test_rows_outside_and_other_artefacts_are_refused(folder: Path, tmp_path: Path):
    with pytest.raises(IndexError):
        open_documents(folder).take([-1])
    with pytest.raises(FarspanError, match=r"farspan\.corpus"):
        open_documents(make_corpus(str(tmp_path / "corpus")))


def test_titles_are_a_column_of_documents_read_with_them(folder: Path, tmp_path: Path):
    titled = open_documents(make_documents(str(tmp_path / "titled"), titles=("One", None, "Three")))
    assert [titled.title(row) for row in (0, 1, 2, len(titled) - 1)] == ["One", None, "Three", "One"]
    assert titled.take([0, 2]).column("title").to_pylist() == ["One", "Three"]
    without = open_documents(folder)
    assert without.title(0) is None
    assert "title" not in without.take([0]).schema.names
    with pytest.raises(IndexError):
        titled.title(len(titled))


@pytest.mark.parametrize("read", [None, [], "x", {"a": None}, {"a": {}}, {"a": {"title_field": None}}])
def test_without_a_field_of_titles_there_are_none(folder: Path, read):
    manifest = open_documents(folder).manifest
    assert not has_titles(replace(manifest, config={**manifest.config, "read": read}))
    assert has_titles(replace(manifest, config={"read": {"a": {}, "b": {"title_field": "name"}}}))
