"""Raw text to documents: every text comes back, whatever the tasks, workers and interruptions."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path

import pytest

from corpora.errors import FarspanError
from corpora.readers import ReadOptions
from corpora.tokenizers.load import load_tokenizer
from corpora.verify.artefact import verify
from pipelines.documents.inputs import Input
from pipelines.engine.options import Engine
from tests.artefacts import all_rows, digests
from tests.killing import run_killed
from tests.pipelines.documents.jobs import build


def test_every_text_comes_back_with_its_sentences(reference, texts):
    tokenizer = load_tokenizer(os.path.join(reference, "tokenizer"))
    found = all_rows(reference)
    assert [tokenizer.decode(row["tokens"]) for row in found] == texts
    assert verify(reference) == []
    for row in found:
        assert row["sentence_starts"][0] == 0
        text, places = tokenizer.decode_with_offsets(row["tokens"])
        for start in row["sentence_starts"][1:]:
            assert text[: places[start]].rstrip()[-1] in ".!?;"
    assert sum(len(row["sentence_starts"]) for row in found) > 2 * len(texts)


def test_ids_name_source_file_and_record_and_survive_a_copy(reference, raw, tokenizer, tmp_path):
    found = all_rows(reference)
    source = os.path.basename(raw)
    assert found[0]["document_id"] == f"{source}:a.jsonl:0"
    assert len({row["document_id"] for row in found}) == len(found)
    copied = shutil.copytree(raw, tmp_path / "elsewhere" / source, copy_function=shutil.copyfile)  # with new times
    build(str(copied), tmp_path / "documents", tokenizer, held_out=0.1, task_bytes=20_000)
    assert digests(tmp_path / "documents") == digests(reference)
    assert (tmp_path / "documents" / "manifest.json").read_bytes() == Path(reference, "manifest.json").read_bytes()


def test_related_documents_are_held_out_together(tokenizer, tmp_path):
    lists = [{"text": [f"Story {number}, told by {voice}." for voice in "abc"]} for number in range(60)]
    (tmp_path / "stories.jsonl").write_text("".join(json.dumps(record) + "\n" for record in lists))
    build(str(tmp_path / "stories.jsonl"), tmp_path / "documents", tokenizer, held_out=0.3)
    held: dict[int, set[bool]] = {}
    for row in all_rows(tmp_path / "documents"):
        held.setdefault(row["cluster"], set()).add(row["held_out"])
    assert len(held) == 60
    assert all(len(flags) == 1 for flags in held.values())
    assert 5 < sum(flags == {True} for flags in held.values()) < 35


def test_held_out_is_a_share_decided_by_the_id(reference, raw, tokenizer, tmp_path):
    held = {row["document_id"] for row in all_rows(reference) if row["held_out"]}
    assert 0.05 < len(held) / 400 < 0.16
    build(raw, tmp_path / "finer", tokenizer, held_out=0.2, task_bytes=1_000)
    more = {row["document_id"] for row in all_rows(tmp_path / "finer") if row["held_out"]}
    assert held < more


def test_how_files_are_cut_changes_no_row(reference, raw, tokenizer, tmp_path):
    build(raw, tmp_path / "documents", tokenizer, held_out=0.1, task_bytes=1 << 30)
    assert len(digests(tmp_path / "documents")) == 1
    assert len(digests(reference)) > 2
    assert all_rows(tmp_path / "documents") == all_rows(reference)


def test_tiny_files_are_spread_over_tasks_and_change_no_row(tokenizer, tmp_path):
    folder = tmp_path / "raw"
    folder.mkdir()
    for number in range(50):
        (folder / f"{number:02d}.txt").write_text(f"The text of file {number}. It is short.")
    manifest = build(str(folder), tmp_path / "one", tokenizer)
    assert manifest.config["task_files"] == 2048
    build(str(folder), tmp_path / "many", tokenizer, task_files=8)
    assert (len(digests(tmp_path / "one")), len(digests(tmp_path / "many"))) == (1, 7)
    assert all_rows(tmp_path / "one") == all_rows(tmp_path / "many")


def test_two_worker_processes_write_the_same_bytes(reference, raw, tokenizer, tmp_path):
    build(raw, tmp_path / "documents", tokenizer, Engine(workers=2), held_out=0.1, task_bytes=20_000)
    assert digests(tmp_path / "documents") == digests(reference)


def test_killed_and_resumed(run, reference, raw, tokenizer, tmp_path):
    output = tmp_path / "documents"
    run_killed("tests.pipelines.documents.jobs", "job_of_reference", "documents", raw, str(output), tokenizer)
    flags = ["--input", raw, "--tokenizer", tokenizer, "--output", output, "--held-out", 0.1, "--task-bytes", 20_000]
    status, _, err = run("documents", *flags, "--workers", 1)
    assert status == 0
    assert re.search(r"resuming: [123] of 4 tasks", err)
    assert digests(output) == digests(reference)


def test_what_cannot_work_is_refused_before_work_starts(raw, tokenizer, tmp_path):
    output = tmp_path / "documents"
    with pytest.raises(FarspanError, match="matches no file"):
        Input.parse(str(tmp_path / "nothing*"))
    with pytest.raises(FarspanError, match=r"no field 'body'.*text"):
        build(raw, output, tokenizer, read=ReadOptions(text_field="body"))
    with pytest.raises(FarspanError, match="held-out"):
        build(raw, output, tokenizer, held_out=1.5)
    with pytest.raises(FarspanError, match="sentence"):
        build(raw, output, tokenizer, sentences="no-such-splitter")
    twin = tmp_path / "twin" / os.path.basename(raw)
    twin.parent.mkdir()
    os.symlink(raw, twin)
    with pytest.raises(FarspanError, match="same ids"):
        build([raw, str(twin)], output, tokenizer)
    assert not output.exists()


def test_output_below_the_input_is_no_input_of_the_next_run(raw, tokenizer, tmp_path):
    folder = tmp_path / "text"
    folder.mkdir()
    (folder / "a.jsonl").write_text('{"text": "One."}\n')
    for _ in range(2):
        manifest = build(str(folder), folder / "documents", tokenizer)
    assert [entry["path"] for entry in manifest.inputs] == ["text:a.jsonl"]
