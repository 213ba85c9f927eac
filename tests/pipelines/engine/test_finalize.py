"""The end of a job: receipts become a manifest, and whatever is missing, damaged or too much is named."""

from __future__ import annotations

import os

import pytest

from corpora.errors import FarspanError
from corpora.storage.manifest import Manifest, Receipt
from corpora.storage.strict_json import seal
from pipelines.engine.finalize import finalize, read_start
from tests.artefacts import tokenizer_entry

TOTALS = dict.fromkeys(("documents", "tokens", "held_out_documents", "held_out_tokens", "max_tokens"), 0)


@pytest.fixture
def begun(tmp_path):
    """A job of two tasks without shards, whose receipts are there."""
    head = Manifest(
        "farspan.documents",
        {},
        0,
        8,
        tokenizer_entry(),
        inputs=({"path": "a:x", "bytes": 10}, {"path": "a:y", "bytes": 5}),
    )
    start = {"head": head.to_values(), "tasks": ["one", "two"], "repeated_links": {"a": 3}}
    (tmp_path / "_work").mkdir()
    (tmp_path / "_work" / "job.json").write_bytes(seal({**start, "origins": {}}))
    for task in ("one", "two"):
        counts = {"a": {"read": 10, "written": 9, "rejected": 1}}
        receipt = Receipt(task, (), TOTALS, counts, {"broken_json": 1}, {"a": {"x": 2}})
        (tmp_path / "_work" / f"{task}.json").write_bytes(receipt.to_json())
    return tmp_path


def test_receipts_and_inputs_are_counted(begun):
    manifest = finalize(str(begun))
    count = manifest.counts["a"]
    assert (count["read"], count["rejected"], manifest.rejects) == (20, 2, {"broken_json": 2})
    names = ("files", "bytes", "damaged_files", "lost_bytes", "repeated_links")
    assert [count[name] for name in names] == [2, 15, 1, 4, 3]
    assert sorted(os.listdir(begun)) == ["README.md", "manifest.json"]
    assert finalize(str(begun)) == manifest  # once more changes nothing


def test_leftovers_of_killed_attempts_are_swept(begun):
    for name in ("shards/part-00000-of-00001.arrow.tmp-dead", "rejects/one.arrow.tmp-dead", "_work/two.npy.tmp-dead"):
        (begun / name).parent.mkdir(exist_ok=True)
        (begun / name).write_bytes(b"half")
    (begun / "_work" / "two.failed").write_text("no room")
    assert finalize(str(begun)).files == {}
    assert sorted(path.name for path in begun.rglob("*") if path.is_file()) == ["README.md", "manifest.json"]


def test_the_largest_share_is_compared_with_the_budget(begun):
    with pytest.raises(FarspanError, match=r"1 of 2 files are damaged \(broken_json 2\), more than .* 40.00%"):
        finalize(str(begun), 0.4)
    assert finalize(str(begun), 0.5)


def test_a_missing_receipt_is_named(begun):
    os.remove(begun / "_work" / "two.json")
    with pytest.raises(FarspanError, match="1 of 2 tasks not done, such as two; run the job's command again"):
        finalize(str(begun))


def test_the_receipt_of_another_task_is_refused(begun):
    (begun / "_work" / "two.json").write_bytes((begun / "_work" / "one.json").read_bytes())
    with pytest.raises(FarspanError, match=r"two\.json: not a receipt of farspan \(it is that of task one\)"):
        finalize(str(begun))


@pytest.mark.parametrize("damage", ["{}", "[1]", '{"head": {"format_version": 1}, "tasks": []}', "nonsense"])
def test_a_damaged_start_is_refused(begun, damage):
    path = begun / "_work" / "job.json"
    path.write_text(damage)
    with pytest.raises(FarspanError, match="does not say which job was begun"):
        read_start(str(path))


def test_a_folder_without_a_job_is_refused(tmp_path):
    with pytest.raises(FarspanError, match="no job was started here"):
        finalize(str(tmp_path / "nothing"))
