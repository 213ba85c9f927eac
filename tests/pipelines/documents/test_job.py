"""Raw text to documents: every text comes back, whatever the sources, tasks, workers and interruptions."""

import hashlib
import io
import json
import os
import re
import shutil
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest

from corpora.errors import FarspanError
from corpora.readers import ReadOptions
from corpora.tokenizers.load import load_tokenizer
from corpora.verify.artefact import verify
from pipelines.documents.inputs import Input
from pipelines.documents.job import plan
from pipelines.documents.options import Documents
from pipelines.engine.options import Engine
from pipelines.engine.run import run_job
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
    assert build(str(folder), tmp_path / "one", tokenizer).config["task_files"] == 2048
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
    assert (status, bool(re.search(r"resuming: [123] of 4 tasks", err))) == (0, True)
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


@pytest.fixture
def mixture(tmp_path):
    """Sources of four formats, one of them with ids of its own, and how each is read."""
    folder = tmp_path / "mixture"
    start = "*** START OF THE PROJECT GUTENBERG EBOOK {} ***\n"
    books = {f"books/{n}.epub.txt": start.format(n) + "A b c. " * n for n in range(9)}
    (folder / "books").mkdir(parents=True)
    with tarfile.open(folder / "books" / "books3.tar.gz", "w:gz") as archive:
        for name, text in books.items():
            info = tarfile.TarInfo(name)
            info.size = len(text)
            archive.addfile(info, io.BytesIO(text.encode()))
    (folder / "talks").mkdir()
    talks = [{"id": f"NPR-{n % 8}", "utt": ["Hello.", "And you?"], "speaker": ["A", "B"]} for n in range(10)]
    (folder / "talks" / "news_dialogue.json").write_text(json.dumps([*talks, {"id": "NPR-9"}]))
    (folder / "news").mkdir()
    news = [{"document": f"First of {n}. ||||| Second of {n}, with more words. ||||| |||||"} for n in range(5)]
    (folder / "news" / "multi.jsonl").write_text("\n".join(map(json.dumps, news)))
    (folder / "topics").mkdir()
    topics = [{"body": f"Text {n}.", "topic": n % 2 or None} for n in range(6)]
    (folder / "topics" / "a.jsonl").write_text("\n".join(map(json.dumps, topics)))
    reads = {
        "books": ReadOptions(format="books3", preprocess=("strip-gutenberg",), min_characters=30),
        "talks": ReadOptions(format="mediasum", id_field="id"),
        "news": ReadOptions(format="multi-news", min_tokens=15),
        "topics": ReadOptions(text_field="body", cluster_field="topic"),
    }
    return tuple(Input.parse(f"{name}={folder / name}", read) for name, read in reads.items())


def test_sources_of_several_formats_in_one_artefact(mixture, tokenizer, tmp_path):
    output = str(tmp_path / "documents")
    options = Documents(inputs=mixture, output=output, tokenizer=tokenizer, error_budget=1.0, task_bytes=300)
    manifest = run_job(plan(options), Engine(workers=1))
    counts = manifest.counts
    assert {name: (c["read"], c["written"], c["filtered"], c["rejected"]) for name, c in counts.items()} == {
        "books": (9, 4, 5, 0),
        "talks": (11, 8, 0, 3),
        "news": (15, 5, 5, 5),
        "topics": (6, 6, 0, 0),
    }
    assert manifest.rejects == {"duplicate_id": 2, "empty_text": 5, "missing_text": 1}
    assert verify(output) == []
    found = all_rows(output)
    for source, count in counts.items():
        assert count["tokens"] == sum(len(row["tokens"]) for row in found if row["source"] == source)
    assert sum(count["tokens"] for count in counts.values()) == manifest.totals["tokens"]
    texts = {row["document_id"]: load_tokenizer(tokenizer).decode(row["tokens"]) for row in found}
    assert texts["books:books3.tar.gz:books/8.epub.txt"].startswith("A b c. A b c.")
    assert texts["talks:NPR-1"] == "A: Hello.\nB: And you?"
    assert texts["news:multi.jsonl:0.1"] == "Second of 0, with more words."
    config = manifest.config["read"]
    assert (config["news"]["min_tokens"], config["books"]["preprocess"]) == (15, ["strip-gutenberg"])


def test_clusters_have_numbers_that_survive_a_move_and_another_cut(mixture, tokenizer, tmp_path):
    _, _, news, topics = mixture
    news = replace(news, read=replace(news.read, min_tokens=0))
    both = (news, topics)
    options = Documents(inputs=both, output="", tokenizer=tokenizer, error_budget=1.0)
    for name, size in (("once", 1 << 20), ("cut", 50)):
        run_job(plan(replace(options, output=str(tmp_path / name), task_bytes=size)), Engine(workers=1))
    found = all_rows(tmp_path / "once")
    assert all_rows(tmp_path / "cut") == found
    members: dict[int | None, list[str]] = {}
    for row in found:
        members.setdefault(row["cluster"], []).append(row["document_id"].rpartition(":")[2])
    alone = members.pop(None)
    assert len(alone) == 3
    assert all(0 <= number < 1 << 63 for number in members)
    stems = [{name.partition(".")[0] for name in names} for names in members.values() if "." in names[0]]
    assert [len(stem) for stem in stems] == [1] * 5
    assert sorted(len(names) for names in members.values()) == [2] * 5 + [3]
    # blake2b, 16 bytes, keyed with blake2b("[0,"cluster",{}]"), over the cluster's name; upper 63 of the first 64 bits
    key = hashlib.blake2b(b'[0,"cluster",{}]', digest_size=16).digest()
    digest = hashlib.blake2b(b"topics:1", digest_size=16, key=key).digest()
    assert int.from_bytes(digest[:8], "little") >> 1 in members


def test_one_source_is_read_in_one_way(raw, tokenizer, tmp_path):
    one = Input.parse(f"c4={raw}/a.jsonl")
    other = Input.parse(f"c4={raw}/b.jsonl", ReadOptions(min_tokens=3))
    with pytest.raises(FarspanError, match="source 'c4' has two different read options"):
        plan(Documents(inputs=(one, other), output=str(tmp_path / "documents"), tokenizer=tokenizer))


def _written(rows, path) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


@pytest.mark.parametrize("own_ids", [False, True])
def test_titles_are_a_column_beside_the_same_rows(own_ids, tokenizer, tmp_path):
    """Without the option neither column nor key of the manifest appears; a source without titles has nulls."""
    tales = [{"text": f"Tale {n}.", "title": [f"Of  {n}", None, " "][n % 3], "id": n % 8} for n in range(10)]
    raw = {"tales": _written(tales, tmp_path / "tales.jsonl"), "notes": _written(tales, tmp_path / "notes.jsonl")}
    ids = ReadOptions(id_field="id" if own_ids else None)
    reads = {"plain": {"tales": ids}, "titled": {"tales": replace(ids, title_field="title")}}
    manifests = {}
    for name, read in reads.items():
        inputs = tuple(Input.parse(f"{source}={path}", read.get(source, ids)) for source, path in raw.items())
        options = Documents(inputs=inputs, output=str(tmp_path / name), tokenizer=tokenizer, error_budget=1)
        manifests[name] = run_job(plan(replace(options, task_bytes=100)), Engine(workers=1))
        assert verify(str(tmp_path / name)) == []
    plain, titled = (all_rows(tmp_path / name) for name in reads)
    assert [{**row, "title": kept["title"]} for row, kept in zip(plain, titled, strict=True)] == titled
    assert list(plain[0]) == ["document_id", "source", "cluster", "held_out", "tokens", "sentence_starts"]
    of_tales = [row["title"] for row in titled if row["source"] == "tales"]
    assert of_tales == [f"Of {n}" if n % 3 == 0 else None for n in range(8 if own_ids else 10)]
    assert {row["title"] for row in titled if row["source"] == "notes"} == {None}
    assert "title_field" not in json.dumps(manifests["plain"].config)
    expected = json.loads(json.dumps(manifests["plain"].config))
    expected["read"]["tales"]["title_field"] = "title"
    assert manifests["titled"].config == expected
    assert manifests["plain"].totals == manifests["titled"].totals
