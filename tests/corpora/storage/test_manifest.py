"""Manifests, receipts and the places of parents: contents, files, and how damage is told."""

import json
import os
import re
import shutil
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from corpora.errors import FarspanError
from corpora.storage.manifest import FileInfo, Manifest, Receipt, ShardInfo, fold
from corpora.storage.manifest_contents import fault, tokenizer_fault
from corpora.storage.manifest_file import (
    ORIGINS_NAME,
    find_parent,
    parent_folder,
    read_manifest,
    relative_path,
    resolve,
    write_manifest,
)
from corpora.storage.shards import shard_name
from corpora.storage.strict_json import StructureError, seal, unseal
from corpora.verify.artefact import verify
from tests.artefacts import make_documents, tokenizer_entry
from tests.vectors import make_vectors


def receipt(index):
    shard = ShardInfo(shard_name(index, 3), index, 10 * index, 100, "0" * 64)
    counts = {"a": {"read": 3, "written": 2, "rejected": 1}}
    return Receipt(f"t{index}", (shard,), {"tokens": index, "max_tokens": index}, counts, {"broken_json": 1})


def test_the_fold_does_not_depend_on_order():
    receipts = [Receipt.from_json(receipt(index).to_json()) for index in range(3)]
    assert fold(receipts) == fold(receipts[::-1])
    assert fold(receipts)["totals"] == {"tokens": 3, "max_tokens": 2}
    assert fold(receipts)["counts"]["a"]["read"] == 9


def test_a_file_of_several_damaged_ranges_loses_at_most_its_bytes():
    receipts = [Receipt(f"t{index}", damage={"a": {"x": lost, "y": 1}}) for index, lost in enumerate((70, 90))]
    count = fold(receipts, [{"path": "a:x", "bytes": 100}, {"path": "a:y", "bytes": 100}])["counts"]["a"]
    assert (count["damaged_files"], count["lost_bytes"]) == (2, 102)


@pytest.mark.parametrize(
    "changes",
    [
        *({"task": task} for task in ("../x", None)),
        *({"shards": shards} for shards in ([{}], {})),
        *({"totals": totals} for totals in ({"tokens": "1"}, [])),
        *({"counts": {"a": count}} for count in ({"guessed": 1}, 1)),
        *({"rejects": {"a": -1}}, {"more": 1}),
    ],
)
def test_receipts_that_nobody_wrote_are_refused(changes):
    values = unseal(receipt(1).to_json())
    assert Receipt.from_json(seal(values)) == receipt(1)
    with pytest.raises(StructureError):
        Receipt.from_json(seal({**values, **changes}))


TOTALS = dict.fromkeys(("sequences", "documents", "parts", "padding", "max_documents"), 1)
CONFIG = {"builder": "random", "sequence_length": 128, "room_per_sequence": 2, "room_per_document": 1}


def manifest(**changes) -> Manifest:
    made = fold(receipt(index) for index in range(3))
    made["totals"] |= TOTALS
    counts = dict.fromkeys(("read", "written", "filtered", "rejected", "uses", "tokens", "held_out_tokens"), 0)
    made["counts"]["a"] = counts
    return replace(Manifest("farspan.corpus", CONFIG, 3, 64, tokenizer_entry(), **made), **changes)


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
    path.write_text('{"format": "farspan.model", "format_version": 1, "config": {}}')
    with pytest.raises(FarspanError, match=r"is 'farspan\.model', which no job makes; give the folder of an artefact"):
        read_manifest(str(tmp_path))  # it is not called damaged
    for make in (os.mkfifo, os.mkdir):
        path.unlink()
        make(path)
        with pytest.raises(FarspanError, match="not a regular file"):
            read_manifest(str(tmp_path))


def test_artefacts_in_a_folder_that_is_none_are_named(tmp_path):
    for name in ("masks", "corpus [1]"):
        (tmp_path / name).mkdir()
        write_manifest(str(tmp_path / name), manifest())
    said = f"{tmp_path}: no farspan artefact, no manifest.json; give one that it contains, such as"
    with pytest.raises(FarspanError, match=re.escape(f"{said} {tmp_path}/corpus [1] or {tmp_path}/masks")):
        read_manifest(str(tmp_path))


@pytest.mark.parametrize("lacking", [*json.loads(manifest().to_json())])
def test_a_manifest_without_a_key_is_refused(tmp_path, lacking):
    values = json.loads(manifest().to_json())
    del values[lacking]
    data = json.dumps(values).encode() if lacking == "checksum" else seal({**values, "checksum": ""})
    (tmp_path / "manifest.json").write_bytes(data)
    with pytest.raises(FarspanError, match=lacking):
        read_manifest(str(tmp_path))


SHARDS = [vars(receipt(index).shards[0]) for index in range(3)]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"shards": [{**SHARDS[0], "name": "../../x"}]}, r"shards\[0\]\.name is"),
        ({"shards": [{**SHARDS[0], "name": "part-00000-of-00001.arrow/../x"}]}, r"shards\[0\]\.name is"),
        ({"shards": SHARDS[:2]}, "part-00000-of-00003.arrow' where 'part-00000-of-00002.arrow' is needed"),
        ({"shards": [SHARDS[1], SHARDS[0], SHARDS[2]]}, "where 'part-00000-of-00003.arrow' is needed"),
        ({"shards": [{**SHARDS[0], "rows": -1}]}, r"shards\[0\]\.rows is -1"),
        ({"shards": [{**SHARDS[0], "bytes": 2**63}]}, r"shards\[0\]\.bytes is 9223372036854775808"),
        ({"shards": [{**SHARDS[0], "sha256": "A" * 64}]}, r"shards\[0\]\.sha256 is"),
        ({"shards": None}, "shards is null; a list is needed"),
        ({"rows_per_batch": 0}, "rows_per_batch is 0"),
        ({"rows_per_batch": True}, "rows_per_batch is true"),
        ({"tokenizer": {}}, "tokenizer lacks fingerprint, vocab_size, owned_tokens"),
        ({"tokenizer": {**tokenizer_entry(), "vocab_size": 0}}, r"tokenizer\.vocab_size is 0"),
        ({"tokenizer": {**tokenizer_entry(), "vocab_size": 2**31}}, r"tokenizer\.vocab_size is 2147483648"),
        ({"tokenizer": {**tokenizer_entry(), "vocab_size": 1}}, "and vocab_size is 1"),
        ({"config": {}}, "config lacks"),
        ({"config": {**CONFIG, "sequence_length": "128"}}, r"config\.sequence_length is \"128\""),
        ({"totals": {}}, "totals lack sequences, "),
        ({"totals": {**TOTALS, "max_tokens": -1}}, r"totals\.max_tokens is -1"),
        ({"counts": {"a": {}}}, r"counts\.a lacks read"),
        ({"counts": {"a\0": {}}}, "without zero bytes"),
        ({"parent": {"path": "x"}}, "parent lacks manifest_sha256"),
        ({"inputs": [{"path": "x", "bytes": "y"}]}, r"inputs\[0\]\.bytes"),
        ({"files": {"../x": {"bytes": 0, "sha256": "0" * 64}}}, r"'\.\./x', which is not a plain path"),
        ({"files": {"/etc/passwd": {"bytes": 0, "sha256": "0" * 64}}}, "which is not a plain path"),
        ({"files": {"a/../../x": {"bytes": 0, "sha256": "0" * 64}}}, "which is not a plain path"),
        ({"files": {"shards/x": {"bytes": 0, "sha256": "0" * 64}}}, "which must not be listed there"),
        ({"format": "farspan.pears"}, "format 'farspan.pears' is unknown; known are farspan.documents"),
        ({"format": "farspan.pairs", "config": {"builder": "pairs"}}, "needs a parent, and this one has none"),
        ({"strange": 1}, 'has an unknown key "strange"'),
        ({"special_tokens": {"<pad>": 1.5}}, r"special_tokens\.<pad> is 1\.5"),
    ],
)
def test_wrong_contents_are_named(tmp_path, changes, message):
    (tmp_path / "manifest.json").write_bytes(seal({**manifest().to_values(), **changes}))
    with pytest.raises(FarspanError, match=message) as caught:
        read_manifest(str(tmp_path))
    assert "\n" not in str(caught.value)


def other(**changes) -> Any:
    """A tokenizer that agrees with the manifest but for what a test changes."""
    return SimpleNamespace(**{**tokenizer_entry(), **changes})


def test_the_first_difference_of_a_tokenizer_is_named():
    made, size = manifest(), tokenizer_entry()["vocab_size"]
    assert tokenizer_fault(made, other()) is None
    assert tokenizer_fault(made, other(fingerprint="x")).startswith("fingerprint 'x', the manifest says '")
    assert tokenizer_fault(made, other(vocab_size=size + 1)) == f"vocab_size {size + 1}, the manifest says {size}"
    name, number = next(iter(tokenizer_entry()["owned_tokens"].items()))
    moved = other(owned_tokens={name: number + 1})
    assert tokenizer_fault(made, moved) == f"{name!r} has id {number + 1}, the manifest says {number}"
    assert tokenizer_fault(made, other(owned_tokens={})) is None, "an older tokenizer may own fewer"


def test_a_job_that_begins_has_no_shards_yet():
    empty = manifest(totals={}, shards=())
    assert fault(empty, finished=False) is None
    assert fault(empty).startswith("totals lack sequences")


# The places of parents: beside the manifest, never in it.
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


def test_damaged_and_lost_records_are_said_with_the_cure(vectors, tmp_path):
    record = tmp_path / "vectors" / ORIGINS_NAME
    for damage in ("", "[]", '{"parent": 3}'):
        record.write_text(damage)
        with pytest.raises(FarspanError, match=r"not a record of the artefact's parents .*; delete it"):
            find_parent(vectors)
    record.unlink()
    assert find_parent(vectors) is None
    with pytest.raises(FarspanError, match=r"was not copied with it; give it: --corpus FOLDER"):
        parent_folder(vectors, "--corpus")


def test_a_parent_that_is_gone_is_said_with_the_cure(vectors, tmp_path):
    assert parent_folder(vectors, "--documents") == str(tmp_path / "documents")
    shutil.move(tmp_path / "documents", tmp_path / "elsewhere")
    said = f"{vectors}: its parent is no longer in {tmp_path}/documents; if it was moved, give it: --documents FOLDER"
    with pytest.raises(FarspanError, match=f"^{said}$"):
        parent_folder(vectors, "--documents")
