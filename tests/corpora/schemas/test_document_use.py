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


@pytest.mark.parametrize(
    ("config", "truncated", "overlap", "max_uses", "one_shard"),
    [
        ({"builder": "random"}, False, 0, 1, True),
        ({"builder": "random", "drop_ragged_tail": True}, True, 0, 1, True),
        ({"builder": "linked", "max_uses": 2}, False, 0, 2, False),
        ({"builder": "long", "overlap": 64}, True, 64, None, True),
        ({"builder": "clusters"}, True, 0, 1, True),
    ],
)
def test_corpora_without_a_statement_have_the_rules_of_their_builder(config, truncated, overlap, max_uses, one_shard):
    use = DocumentUse.of(manifest(**config))
    assert (use.truncated, use.overlap, use.max_uses, use.one_shard) == (truncated, overlap, max_uses, one_shard)
    assert use.left_out


def test_an_unknown_builder_has_to_state_it():
    with pytest.raises(FarspanError, match=r"config\.builder 'fifth' is unknown, and config\.document_use"):
        DocumentUse.of(manifest(builder="fifth"))


@pytest.mark.parametrize("stated", [5, {}, {**asdict(DocumentUse()), "overlap": -1}, {**asdict(DocumentUse()), "x": 1}])
def test_malformed_statements_are_refused(stated):
    with pytest.raises(FarspanError, match=r"config\.document_use"):
        DocumentUse.of(manifest(builder="random", document_use=stated))


def restate(folder: str, builder: str, use: DocumentUse | None, filtered: int = 0) -> None:
    old = read_manifest(folder)
    config = {**old.config, "builder": builder}
    counts = {
        name: {**count, "filtered": filtered, "read": count["written"] + filtered} for name, count in old.counts.items()
    }
    if use is not None:
        config["document_use"] = asdict(use)
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


def test_verification_of_an_unknown_builder_names_the_manifest(tmp_path):
    folder = make_corpus(str(tmp_path / "corpus"))
    restate(folder, "fifth", None)
    with pytest.raises(FarspanError, match=rf"{os.path.join(folder, 'manifest.json')}: config\.builder 'fifth'"):
        verify(folder)


def test_the_statement_decides_no_bytes():
    assert manifest(builder="x", document_use=asdict(DocumentUse())).job == manifest(builder="x").job
