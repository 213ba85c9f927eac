"""The places of parents: beside the manifest, never in it."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace

import pytest

from corpora.errors import FarspanError
from corpora.storage.manifest import Manifest
from corpora.storage.manifest_file import manifest_sha256, read_manifest, write_manifest
from corpora.storage.origins import NAME, find_parent, parent_folder, relative_path, resolved
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
    assert resolved(output, path) == parent


@pytest.fixture
def vectors(tmp_path) -> str:
    make_documents(str(tmp_path / "documents"), documents=20)
    return make_vectors(str(tmp_path / "vectors"), str(tmp_path / "documents"))


def test_the_parent_is_found_wherever_both_were_moved(vectors, tmp_path):
    manifest = read_manifest(vectors)
    assert find_parent(vectors, manifest) == str(tmp_path / "documents")
    moved = shutil.copytree(vectors, tmp_path / "far" / "vectors")
    assert find_parent(str(moved), manifest) == str(tmp_path / "far" / "documents")
    assert verify(vectors) == []  # the record is no file that the manifest lists


def test_a_lost_record_is_said_with_the_cure(vectors, tmp_path):
    os.remove(tmp_path / "vectors" / NAME)
    assert find_parent(vectors, read_manifest(vectors)) is None
    with pytest.raises(FarspanError, match=r"was not copied with it; give it: --corpus FOLDER"):
        parent_folder(vectors, read_manifest(vectors), "--corpus")


def test_a_parent_that_is_gone_is_said_with_the_cure(vectors, tmp_path):
    manifest = read_manifest(vectors)
    assert parent_folder(vectors, manifest, "--documents") == str(tmp_path / "documents")
    shutil.move(tmp_path / "documents", tmp_path / "elsewhere")
    said = f"{vectors}: its parent is no longer in {tmp_path}/documents; if it was moved, give it: --documents FOLDER"
    with pytest.raises(FarspanError, match=f"^{said}$"):
        parent_folder(vectors, manifest, "--documents")


@pytest.mark.parametrize("damage", ["", "[]", '{"parent": 3}'])
def test_a_damaged_record_is_said(vectors, tmp_path, damage):
    (tmp_path / "vectors" / NAME).write_text(damage)
    with pytest.raises(FarspanError, match=r"not a record of the artefact's parents .*; delete it"):
        find_parent(vectors, read_manifest(vectors))


def version_2(folder: str) -> Manifest:
    """The manifest in ``folder`` as version 2 had it: with the parent's path."""
    manifest = read_manifest(folder)
    parent = {"path": "../documents", **(manifest.parent or {})}
    neighbours = {"path": "../neighbours", "manifest_sha256": "0" * 64}
    return replace(manifest, format_version=2, parent=parent, config={**manifest.config, "neighbours": neighbours})


def test_version_2_names_the_parent_in_the_manifest(vectors, tmp_path):
    (tmp_path / "vectors" / NAME).unlink()
    write_manifest(vectors, version_2(vectors))
    assert find_parent(vectors, read_manifest(vectors)) == str(tmp_path / "documents")


def test_a_job_of_version_2_is_the_same_job(vectors):
    before, now = version_2(vectors), read_manifest(vectors)
    config = {**now.config, "neighbours": {"manifest_sha256": "0" * 64}}
    assert before.to_values()["format_version"] == 2
    assert before.job == replace(now, config=config).job
    assert before.job["parent"] == manifest_sha256(resolved(vectors, "../documents"))
