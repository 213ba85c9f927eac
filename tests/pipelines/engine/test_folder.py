"""A job in its folder: its parents and paths; begun, resumed, finished, folded from receipts; what is damaged."""

import json
import os
from dataclasses import replace

import pytest

from corpora.errors import FarspanError
from corpora.storage.manifest import Manifest, Receipt
from corpora.storage.manifest_file import manifest_sha256
from corpora.storage.strict_json import seal
from corpora.tokenizers.training import train_byte_level_bpe
from pipelines.engine.artefacts import (
    Parent,
    artefact_tokenizer,
    declare_derived_job,
    save_tokenizer,
)
from pipelines.engine.folder import begin, check_output, finalize, require_begun
from pipelines.engine.job import claims_folder, processes_folder, remove_empty_folders
from tests.artefacts import make_documents, tokenizer_entry
from tests.pipelines.engine.test_run import finished, job


def test_an_artefact_made_again_has_its_new_tokenizer(tmp_path):
    for vocab_size in (270, 280):
        tokenizer = train_byte_level_bpe(["a few words, and a few more words"], vocab_size)
        save_tokenizer(tokenizer, str(tmp_path / "tokenizer"))
        assert artefact_tokenizer(str(tmp_path)).fingerprint == tokenizer.fingerprint


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return make_documents(str(tmp_path_factory.mktemp("derived") / "documents"), shards=3)


def declare(output: str, parent: Parent, **options):
    values = {"format": "farspan.corpus", "config": {"builder": "x"}, "seed": 3, "rows_per_batch": 8, "work_bytes": 5}
    return declare_derived_job(output, parent, [], **{**values, **options})


def test_a_parent_knows_its_rows_and_bytes(folder, monkeypatch):
    monkeypatch.chdir(os.path.dirname(folder))
    parent = Parent.read("documents/", "farspan.documents")
    assert parent.folder == os.path.realpath(folder)
    rows = [shard.rows for shard in parent.manifest.shards]
    assert parent.first_rows == (0, rows[0], rows[0] + rows[1], sum(rows))
    assert [shard.rows for shard in parent.shards] == rows
    assert parent.bytes == sum(os.path.getsize(shard.path) for shard in parent.shards)
    assert parent.vocab_size == parent.manifest.tokenizer["vocab_size"]


def test_a_derived_job_names_its_parent_and_has_its_tokenizer(folder, tmp_path):
    parent = Parent.read(folder, "farspan.documents")
    job = declare(os.path.join(os.path.dirname(folder), "corpus"), parent)
    assert job.head.parent is not None
    assert (job.head.parent, job.origins) == ({"manifest_sha256": manifest_sha256(folder)}, {"parent": "../documents"})
    assert declare("/somewhere/else/corpus", parent).head == job.head
    assert job.head.tokenizer == parent.manifest.tokenizer
    assert (job.head.seed, job.head.rows_per_batch, job.head.special_tokens, job.work_bytes) == (3, 8, {}, 5)
    assert declare("elsewhere", parent, special_tokens={"<mask>": 9}).head.special_tokens == {"<mask>": 9}


def test_the_output_cannot_be_the_parent(folder):
    with pytest.raises(FarspanError, match="is the folder that the job reads"):
        declare(folder, Parent.read(folder, "farspan.documents"))


TOTALS = dict.fromkeys(("documents", "tokens", "held_out_documents", "held_out_tokens", "max_tokens"), 0)


@pytest.fixture
def begun(tmp_path):
    """A job of two tasks without shards, whose receipts are there."""
    inputs = ({"path": "a:x", "bytes": 10}, {"path": "a:y", "bytes": 5})
    head = Manifest("farspan.documents", {}, 0, 8, tokenizer_entry(), inputs=inputs)
    start = {"head": head.to_values(), "tasks": ["one", "two"], "repeated_links": {"a": 3}}
    (tmp_path / "_work").mkdir()
    (tmp_path / "_work" / "job.json").write_bytes(seal({**start, "versions": {}, "origins": {}}))
    counts = {"a": {"read": 10, "written": 9, "rejected": 1}}
    for task in ("one", "two"):
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
    assert json.loads((tmp_path / "_work" / "job.json").read_text())["tasks"] == ["one", "two"]
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


def test_empty_folders_go_unless_a_process_is_there(tmp_path):
    output = str(tmp_path)
    for folder in (processes_folder(output), claims_folder(output)):
        (tmp_path / folder).mkdir(parents=True)
    sign = tmp_path / processes_folder(output) / "driver~a"
    sign.touch()
    remove_empty_folders(output)
    assert (tmp_path / claims_folder(output)).is_dir()
    sign.unlink()
    kept = tmp_path / "_work" / "job.json"
    kept.touch()
    remove_empty_folders(output)
    assert list((tmp_path / "_work").iterdir()) == [kept]
    kept.unlink()
    remove_empty_folders(output)
    assert list(tmp_path.iterdir()) == []
    remove_empty_folders("memory://bucket/none")
