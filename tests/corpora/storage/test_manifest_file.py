"""Manifests in folders: written, read back, and refused in one line if malformed."""

from __future__ import annotations

import json
import os
from dataclasses import replace

import pytest

from corpora.errors import FarspanError
from corpora.storage.manifest import FileInfo, Manifest, fold
from corpora.storage.manifest_file import read_manifest, write_manifest
from corpora.storage.sealed_json import seal
from tests.artefacts import tokenizer_entry
from tests.corpora.storage.test_manifest import receipt

TOTALS = dict.fromkeys(("sequences", "documents", "parts", "padding", "max_documents"), 1)
CONFIG = {"builder": "random", "sequence_length": 128, "room_per_sequence": 2, "room_per_document": 1}


def manifest(**changes) -> Manifest:
    made = fold(receipt(index) for index in range(3))
    made["totals"] |= TOTALS
    counts = dict.fromkeys(("read", "written", "filtered", "rejected", "uses", "tokens", "held_out_tokens"), 0)
    made["counts"]["a"] = counts
    whole = Manifest("farspan.corpus", CONFIG, 3, 64, tokenizer_entry(), **made)
    return replace(whole, **changes)


def test_manifests_are_read_back(tmp_path):
    entry = {"manifest_sha256": "0" * 64}
    whole = manifest(parent=entry, files={"tokenizer/tokenizer.json": FileInfo(3, "1" * 64)})
    write_manifest(str(tmp_path), whole)
    assert read_manifest(str(tmp_path), "farspan.corpus") == whole
    with pytest.raises(FarspanError, match=r"farspan\.masks"):
        read_manifest(str(tmp_path), "farspan.masks")


@pytest.mark.parametrize("version", [0, 2, 7])
def test_an_unknown_version_is_refused_by_name(tmp_path, version):
    write_manifest(str(tmp_path), manifest(farspan_version="9.1", format_version=version))
    said = rf"format_version {version} is unknown .* \(it knows 1\); install the farspan that wrote it: '9\.1'"
    with pytest.raises(FarspanError, match=said):
        read_manifest(str(tmp_path))


def test_what_is_no_manifest_is_refused(tmp_path):
    path = tmp_path / "manifest.json"
    with pytest.raises(FarspanError, match="no farspan artefact"):
        read_manifest(str(tmp_path))
    for data in (b"{", b"\xff{}", b"[]", b"null", b"", b"{}", b"[" * 100_000, b'{"format_version": NaN}'):
        path.write_bytes(data)
        with pytest.raises(FarspanError, match="not a manifest of farspan"):
            read_manifest(str(tmp_path))
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(FarspanError, match="not a regular file"):
        read_manifest(str(tmp_path))
    path.unlink()
    path.mkdir()
    with pytest.raises(FarspanError, match="not a regular file"):
        read_manifest(str(tmp_path))


@pytest.mark.parametrize("lacking", [*json.loads(manifest().to_json())])
def test_a_manifest_without_a_key_is_refused(tmp_path, lacking):
    values = json.loads(manifest().to_json())
    del values[lacking]
    data = json.dumps(values).encode() if lacking == "checksum" else seal({**values, "checksum": ""})
    (tmp_path / "manifest.json").write_bytes(data)
    with pytest.raises(FarspanError, match=lacking):
        read_manifest(str(tmp_path))


def test_a_folder_of_another_kind_is_not_called_damaged(tmp_path):
    (tmp_path / "manifest.json").write_text('{"format": "farspan.model", "format_version": 1, "config": {}}')
    with pytest.raises(FarspanError, match=r"is 'farspan\.model', which no job makes; give the folder of an artefact"):
        read_manifest(str(tmp_path))
