"""The rules by which a corpus uses documents: written, read back, and verified."""

from __future__ import annotations

import os
from dataclasses import asdict, replace

import pytest

from corpora.errors import FarspanError
from corpora.schemas.document_use import DocumentUse
from corpora.storage.manifest import Manifest
from corpora.storage.manifest_file import read_manifest, write_manifest
from corpora.verify.artefact import verify
from tests.artefacts import make_corpus


def manifest(**config) -> Manifest:
    return Manifest("farspan.corpus", config, 0, 64, {})


def test_a_statement_is_read_back():
    use = DocumentUse(truncated=True, overlap=3, max_uses=None, one_shard=False, left_out="too long")
    assert DocumentUse.of(manifest(builder="fifth", document_use=asdict(use))) == use


def test_a_corpus_has_to_state_it():
    with pytest.raises(FarspanError, match=r"config\.document_use, .* builder 'random' uses documents, is missing"):
        DocumentUse.of(manifest(builder="random"))


@pytest.mark.parametrize("stated", [5, {}, {**asdict(DocumentUse()), "overlap": -1}, {**asdict(DocumentUse()), "x": 1}])
def test_malformed_statements_are_refused(stated):
    with pytest.raises(FarspanError, match=r"config\.document_use"):
        DocumentUse.of(manifest(builder="random", document_use=stated))


def restate(folder: str, builder: str, use: DocumentUse | None, filtered: int = 0) -> None:
    old = read_manifest(folder)
    stated = {} if use is None else {"document_use": asdict(use)}
    config = {name: value for name, value in old.config.items() if name != "document_use"}
    config |= {"builder": builder, **stated}
    counts = {
        name: {**count, "filtered": filtered, "read": count["written"] + filtered} for name, count in old.counts.items()
    }
    write_manifest(folder, replace(old, config=config, counts=counts))


def test_verification_goes_by_the_statement(tmp_path):
    folder = make_corpus(str(tmp_path / "corpus"))
    restate(folder, "fifth", DocumentUse())
    assert verify(folder) == []
    restate(folder, "fifth", DocumentUse(max_uses=0))
    assert "a document is used 1 times, max_uses is 0" in verify(folder)
    restate(folder, "fifth", DocumentUse(one_shard=False), filtered=2)
    assert verify(folder) == ["manifest.json: 2 documents are left out, though document_use.left_out is null"]
    restate(folder, "fifth", DocumentUse(left_out="too short"))
    assert verify(folder) == []


def test_verification_without_a_statement_names_the_manifest(tmp_path):
    folder = make_corpus(str(tmp_path / "corpus"))
    restate(folder, "fifth", None)
    with pytest.raises(FarspanError, match=rf"{os.path.join(folder, 'manifest.json')}: config\.document_use, the"):
        verify(folder)
