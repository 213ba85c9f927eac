"""A job in its folder: begun, resumed, finished, and folded from receipts; whatever is missing or damaged is named."""

from __future__ import annotations

import json
import os
from dataclasses import replace

import pytest

from corpora.errors import FarspanError
from corpora.storage.manifest import Manifest, Receipt
from corpora.storage.strict_json import seal
from pipelines.engine.folder import begin, check_output, finalize, read_start, require_begun
from tests.artefacts import tokenizer_entry
from tests.pipelines.engine.test_run import finished, job

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
    (tmp_path / "_work" / "job.json").write_bytes(seal({**start, "versions": {}, "origins": {}}))
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


def test_a_folder_must_be_empty_or_an_artefact(tmp_path):
    check_output(str(tmp_path / "none"))
    check_output(str(tmp_path))
    (tmp_path / "mine.txt").write_text("x")
    with pytest.raises(FarspanError, match="not empty and no farspan artefact; give --output a new or empty folder"):
        begin(job(tmp_path, "one"))
    (tmp_path / "manifest.json").write_text("{}")
    check_output(str(tmp_path))


def test_a_job_is_begun_once_and_then_resumed(tmp_path, capsys):
    two = job(tmp_path, "one", "two")
    assert begin(two) == set()
    written = json.loads((tmp_path / "_work" / "job.json").read_text())
    assert written["tasks"] == ["one", "two"]
    assert capsys.readouterr().err == ""
    (tmp_path / "_work" / "one.json").write_text("{}")
    (tmp_path / "_work" / "two.failed").write_text("why")
    assert begin(two) == {"one"}
    assert capsys.readouterr().err == "resuming: 1 of 2 tasks are done\n"
    assert not (tmp_path / "_work" / "two.failed").exists()


def test_another_configuration_is_refused_with_what_changed(tmp_path):
    one = job(tmp_path, "one")
    begin(one)
    other = replace(one, head=replace(one.head, seed=9, config={"split": "held-out"}))
    with pytest.raises(FarspanError, match=r"config\.split was 'train', is 'held-out'; seed was 0, is 9\. Give --ou"):
        begin(other)
    pears = replace(one, head=replace(one.head, format="farspan.vectors"))
    with pytest.raises(FarspanError, match=r"holds farspan\.neighbours, not farspan\.vectors; give --output another"):
        begin(pears)


def test_a_finished_job_is_not_begun_again(tmp_path):
    finished(tmp_path)
    require_begun(str(tmp_path))
    finalize(str(tmp_path))
    assert begin(job(tmp_path)) is None
    with pytest.raises(FarspanError, match="another job finished this artefact meanwhile"):
        require_begun(str(tmp_path))
    (tmp_path / "manifest.json").unlink()
    with pytest.raises(FarspanError, match="was deleted while the job ran"):
        require_begun(str(tmp_path))
