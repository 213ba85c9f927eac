"""The places of parents: beside the manifest, never in it."""

from __future__ import annotations

import os
import shutil

import pytest

from corpora.errors import FarspanError
from corpora.storage.origins import NAME, find_parent, parent_folder, relative_path, resolve
from corpora.verify.artefact import verify
from tests.artefacts import make_documents
from tests.vectors import make_vectors


@pytest.mark.parametrize(
    ("output", "parent", "path"),
    [
        ("attic://bucket/a/corpus", "attic://bucket/documents", "../../documents"),
        ("attic://bucket/corpus", "attic://other/documents", "attic://other/documents"),
        ("/a/corpus", "attic://bucket/documents", "attic://bucket/documents"),
        ("attic://bucket/corpus", "/a/documents", "/a/documents"),
        ("/a/corpus", "/a/documents", "../documents"),
    ],
)
def test_artefacts_that_move_together_keep_their_parents(output, parent, path):
    assert relative_path(output, parent) == path
    assert resolve(output, path) == parent


@pytest.fixture
def vectors(tmp_path) -> str:
    make_documents(str(tmp_path / "documents"), documents=20)
    return make_vectors(str(tmp_path / "vectors"), str(tmp_path / "documents"))


def test_the_parent_is_found_wherever_both_were_moved(vectors, tmp_path):
    assert find_parent(vectors) == str(tmp_path / "documents")
    moved = shutil.copytree(vectors, tmp_path / "far" / "vectors")
    assert find_parent(str(moved)) == str(tmp_path / "far" / "documents")
    assert verify(vectors) == []  # the record is no file that the manifest lists


def test_a_lost_record_is_said_with_the_cure(vectors, tmp_path):
    os.remove(tmp_path / "vectors" / NAME)
    assert find_parent(vectors) is None
    with pytest.raises(FarspanError, match=r"was not copied with it; give it: --corpus FOLDER"):
        parent_folder(vectors, "--corpus")


def test_a_parent_that_is_gone_is_said_with_the_cure(vectors, tmp_path):
    assert parent_folder(vectors, "--documents") == str(tmp_path / "documents")
    shutil.move(tmp_path / "documents", tmp_path / "elsewhere")
    said = f"{vectors}: its parent is no longer in {tmp_path}/documents; if it was moved, give it: --documents FOLDER"
    with pytest.raises(FarspanError, match=f"^{said}$"):
        parent_folder(vectors, "--documents")


@pytest.mark.parametrize("damage", ["", "[]", '{"parent": 3}'])
def test_a_damaged_record_is_said(vectors, tmp_path, damage):
    (tmp_path / "vectors" / NAME).write_text(damage)
    with pytest.raises(FarspanError, match=r"not a record of the artefact's parents .*; delete it"):
        find_parent(vectors)
