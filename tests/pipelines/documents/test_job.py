"""Raw text to documents: bad records beside good ones, duplicate ids, kill -9, workers."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import random
import subprocess
import sys
import tarfile
from collections import Counter
from dataclasses import replace

import pyarrow as pa
import pytest

from corpora.errors import FarspanError
from corpora.readers import ReadOptions
from corpora.storage.files import LocalFiles
from corpora.storage.shards import map_shard
from corpora.tokenizers import load_tokenizer
from corpora.verify.artefact import verify
from pipelines.documents.inputs import Input
from pipelines.documents.job import Documents, plan
from pipelines.engine.job import run_job
from pipelines.engine.runner import Engine
from tests.artefacts import all_rows, digests, small_tokenizer
from tests.corpora.tokenizers.test_special_pieces import JSON
from tests.killing import run_killed

WORDS = "the quick brown fox jumps over a lazy dog. Naïve wizards drink café au lait! 世界 is wide; isn't it?".split()


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    folder = str(tmp_path_factory.mktemp("tokenizer"))
    small_tokenizer().save(folder)
    return folder


@pytest.fixture(scope="module")
def texts():
    draw = random.Random(0)
    return [" ".join(draw.choices(WORDS, k=draw.randint(1, 60))) for _ in range(400)]


@pytest.fixture(scope="module")
def raw(texts, tmp_path_factory):
    """400 good records in two plain files and a compressed one."""
    folder = tmp_path_factory.mktemp("raw")
    lines = [json.dumps({"text": text, "url": f"u{i}"}, ensure_ascii=i % 2 == 0) for i, text in enumerate(texts)]
    (folder / "a.jsonl").write_text("\n".join(lines[:150]) + "\n")
    (folder / "b.jsonl").write_text("\n".join(lines[150:300]))
    with gzip.open(folder / "c.json.gz", "wt") as file:
        file.write("\n".join(lines[300:]))
    return str(folder)


def job(raw, output, tokenizer, read=ReadOptions(), **options):  # noqa: B008 (frozen)
    inputs = tuple(Input.parse(text, read) for text in ([raw] if isinstance(raw, str) else raw))
    return plan(Documents(inputs=inputs, output=str(output), tokenizer=tokenizer, **options))


def build(raw, output, tokenizer, engine=Engine(workers=1), **options):  # noqa: B008 (frozen)
    return run_job(job(raw, output, tokenizer, **options), engine)


def rejects(folder):
    found = []
    for path in LocalFiles().walk(os.path.join(str(folder), "rejects")):
        reader = map_shard(path)[1]
        found += pa.Table.from_batches([reader.get_batch(i) for i in range(reader.num_record_batches)]).to_pylist()
    return found


@pytest.fixture(scope="module")
def reference(raw, tokenizer, tmp_path_factory):
    folder = str(tmp_path_factory.mktemp("reference") / "documents")
    build(raw, folder, tokenizer, held_out=0.1, task_bytes=20_000)
    return folder


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


def test_ids_name_source_file_and_record_and_survive_a_move(reference, raw, tokenizer, tmp_path):
    found = all_rows(reference)
    source = os.path.basename(raw)
    assert found[0]["document_id"] == f"{source}:a.jsonl:0"
    assert len({row["document_id"] for row in found}) == len(found)
    moved = tmp_path / "elsewhere" / source
    moved.parent.mkdir()
    os.symlink(raw, moved)
    build(str(moved), tmp_path / "documents", tokenizer, held_out=0.1, task_bytes=20_000)
    assert digests(tmp_path / "documents") == digests(reference)


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


def test_two_worker_processes_write_the_same_bytes(reference, raw, tokenizer, tmp_path):
    build(raw, tmp_path / "documents", tokenizer, Engine(workers=2), held_out=0.1, task_bytes=20_000)
    assert digests(tmp_path / "documents") == digests(reference)


def job_of_reference(raw, output, tokenizer):
    return job(raw, output, tokenizer, held_out=0.1, task_bytes=20_000)


def test_killed_and_resumed(run, reference, raw, tokenizer, tmp_path):
    output = tmp_path / "documents"
    run_killed("tests.pipelines.documents.test_job", "job_of_reference", "documents", raw, str(output), tokenizer)
    flags = ["--input", raw, "--tokenizer", tokenizer, "--output", output, "--held-out", 0.1, "--task-bytes", 20_000]
    status, _, err = run("documents", *flags, "--workers", 1)
    assert status == 0
    assert "resuming: 1 of" in err
    assert digests(output) == digests(reference)


BAD = {
    "invalid_utf8": b'{"text": "caf\xe9 au lait"}',
    "broken_json": b'{"text": "no end',
    "not_an_object": b'["text", "in a list"]',
    "missing_text": b'{"body": "elsewhere"}',
    "null_text": b'{"text": null}',
    "empty_text": b'{"text": "  "}',
    "not_a_string": b'{"text": 7}',
    "too_long": b'{"text": "' + b"long " * 4_000 + b'"}',
}


@pytest.fixture
def bad(tmp_path):
    """Each bad line stands between two good ones; a truncated gzip and an unreadable file beside them."""
    folder = tmp_path / "bad"
    folder.mkdir()
    good = [json.dumps({"text": f"A good neighbour, number {i}. It stays."}).encode() for i in range(len(BAD) + 1)]
    lines = [good[0]]
    for line, neighbour in zip(BAD.values(), good[1:], strict=True):
        lines += [line, neighbour]
    (folder / "lines.jsonl").write_bytes(b"\n".join(lines) + b"\n")
    whole = gzip.compress(
        b"\n".join(json.dumps({"text": f"Line {random.random()} of many."}).encode() for _ in range(400))
    )
    (folder / "cut.jsonl.gz").write_bytes(whole[: len(whole) // 2])
    (folder / "magic.json.gz").write_bytes(b"this is no gzip file")
    return str(folder)


def test_bad_records_are_rejected_alone_with_place_reason_and_bytes(bad, tokenizer, tmp_path):
    output = tmp_path / "documents"
    manifest = build(bad, output, tokenizer, read=ReadOptions(max_record_bytes=10_000), error_budget=1.0)
    names = [row["document_id"] for row in all_rows(output)]
    assert sum(":lines.jsonl:" in name for name in names) == len(BAD) + 1
    assert sum(":cut.jsonl.gz:" in name for name in names) > 50
    found = {row["reason"]: row for row in rejects(output) if row["path"] == "lines.jsonl"}
    assert set(found) == set(BAD)
    content = open(os.path.join(bad, "lines.jsonl"), "rb").read()
    for reason, line in BAD.items():
        assert content[int(found[reason]["record"]) :].startswith(line)
        if reason != "too_long":
            assert found[reason]["raw"] == line
    others = {row["path"]: row["reason"] for row in rejects(output) if row["path"] != "lines.jsonl"}
    assert others == {"cut.jsonl.gz": "truncated_file", "magic.json.gz": "unreadable_file"}
    count = manifest.counts["bad"]
    assert count["read"] == count["written"] + count["rejected"] + count["filtered"]
    assert count["rejected"] == sum(manifest.rejects.values()) == len(BAD) + 2
    assert verify(str(output)) == []


def test_the_error_budget_stops_the_job_and_keeps_its_work(bad, tokenizer, tmp_path):
    output = tmp_path / "documents"
    read = ReadOptions(max_record_bytes=10_000)
    with pytest.raises(FarspanError, match=r"files are damaged \(.*broken_json 1.*larger --error-budget"):
        build(bad, output, tokenizer, read=read)
    assert not (output / "manifest.json").exists()
    receipt = output / "_work" / "documents-00000.json"
    before = os.stat(receipt).st_mtime_ns
    with pytest.raises(FarspanError, match="2 of 3 files are damaged"):
        build(bad, output, tokenizer, read=read, error_budget=0.5)
    assert os.stat(receipt).st_mtime_ns == before
    build(bad, output, tokenizer, read=read, error_budget=0.7)
    assert verify(str(output)) == []


def test_the_first_of_equal_ids_stays(tokenizer, tmp_path):
    folder = tmp_path / "raw"
    folder.mkdir()
    ids = [random.Random(1).randint(0, 60) for _ in range(300)]
    for name, part in (("a", ids[:150]), ("b", ids[150:])):
        lines = [json.dumps({"text": f"Text {name} {place}.", "key": f"k{key}"}) for place, key in enumerate(part)]
        (folder / f"{name}.jsonl").write_text("\n".join(lines))
    options = {"read": ReadOptions(id_field="key"), "task_bytes": 2_000, "error_budget": 1.0}
    manifests = [
        build(str(folder), tmp_path / f"w{workers}", tokenizer, Engine(workers=workers), **options)
        for workers in (1, 2)
    ]
    assert digests(tmp_path / "w1") == digests(tmp_path / "w2")
    reader = load_tokenizer(tokenizer)
    found = {row["document_id"]: reader.decode(row["tokens"]) for row in all_rows(tmp_path / "w1")}
    expected = {}
    for place, key in enumerate(ids):
        name = "ab"[place >= 150]
        expected.setdefault(f"raw:k{key}", f"Text {name} {place % 150}.")
    assert found == expected
    assert manifests[0].rejects == {"duplicate_id": 300 - len(expected)}
    assert Counter(row["reason"] for row in rejects(tmp_path / "w1")) == manifests[0].rejects
    assert manifests[0].counts["raw"]["read"] == 300
    assert verify(str(tmp_path / "w1")) == []


@pytest.fixture
def mixture(tmp_path):
    """Sources of four formats, one of them with ids of its own, and how each is read."""
    folder = tmp_path / "mixture"
    books = {
        f"books/{n}.epub.txt": f"*** START OF THE PROJECT GUTENBERG EBOOK {n} ***\n" + "A b c. " * n for n in range(9)
    }
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
    manifests = [
        run_job(
            plan(
                Documents(
                    inputs=mixture,
                    output=str(tmp_path / f"w{workers}"),
                    tokenizer=tokenizer,
                    error_budget=1.0,
                    task_bytes=300,
                )
            ),
            Engine(workers=workers),
        )
        for workers in (1, 2)
    ]
    assert digests(tmp_path / "w1") == digests(tmp_path / "w2")
    output = str(tmp_path / "w1")
    counts = manifests[0].counts
    assert {name: (c["read"], c["written"], c["filtered"], c["rejected"]) for name, c in counts.items()} == {
        "books": (9, 4, 5, 0),
        "talks": (11, 8, 0, 3),
        "news": (15, 5, 5, 5),
        "topics": (6, 6, 0, 0),
    }
    assert manifests[0].rejects == {"duplicate_id": 2, "empty_text": 5, "missing_text": 1}
    assert verify(output) == []
    found = all_rows(output)
    for source, count in counts.items():
        assert count["tokens"] == sum(len(row["tokens"]) for row in found if row["source"] == source)
    assert sum(count["tokens"] for count in counts.values()) == manifests[0].totals["tokens"]
    texts = {row["document_id"]: load_tokenizer(tokenizer).decode(row["tokens"]) for row in found}
    assert texts["books:books3.tar.gz:books/8.epub.txt"].startswith("A b c. A b c.")
    assert texts["talks:NPR-1"] == "A: Hello.\nB: And you?"
    assert texts["news:multi.jsonl:0.1"] == "Second of 0, with more words."
    config = manifests[0].config["read"]
    assert (config["news"]["min_tokens"], config["books"]["preprocess"]) == (15, ["strip-gutenberg"])


def test_clusters_have_numbers_that_survive_a_move_and_another_cut(mixture, tokenizer, tmp_path):
    _, _, news, topics = mixture
    news = replace(news, read=replace(news.read, min_tokens=0))
    both = (news, topics)
    for name, size in (("once", 1 << 20), ("cut", 50)):
        run_job(
            plan(
                Documents(
                    inputs=both, output=str(tmp_path / name), tokenizer=tokenizer, error_budget=1.0, task_bytes=size
                )
            ),
            Engine(workers=1),
        )
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
    with pytest.raises(FarspanError, match="source 'c4' is to be read in two ways"):
        plan(Documents(inputs=(one, other), output=str(tmp_path / "documents"), tokenizer=tokenizer))


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


def test_an_input_is_named_and_rooted(raw):
    whole = Input.parse(raw)
    assert (whole.source, whole.relative(whole.paths[0])) == (os.path.basename(raw), "a.jsonl")
    named = Input.parse(f"c4={raw}/*.json.gz")
    assert (named.source, [named.relative(path) for path in named.paths]) == ("c4", ["c.json.gz"])
    one = Input.parse(f"{raw}/a.jsonl")
    assert (one.source, one.relative(one.paths[0])) == ("a", "a.jsonl")
    with pytest.raises(FarspanError, match="leave ':' out"):
        Input.parse(f"a:b={raw}")


def test_what_publishers_put_beside_the_records_is_left_out_of_a_folder(tmp_path):
    names = {
        "pg19": (["train/1.txt", "train/2.txt"], ["README.md", "metadata.csv"]),
        "mediasum": (["news_dialogue.json"], ["train_val_test_split.json"]),
        "multi-news": (["train.src", "train.src.cleaned"], ["train.tgt", "train.tgt.cleaned"]),
        "opensubtitles": (["en/1990/1/2.xml"], ["INFO", "LICENSE"]),
    }
    for format, (data, beside) in names.items():
        for name in [*data, *beside]:
            (tmp_path / format / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / format / name).touch()
        item = Input.parse(str(tmp_path / format), ReadOptions(format=format))
        assert [item.relative(path) for path in item.paths] == data
        one = Input.parse(str(tmp_path / format / beside[-1]), ReadOptions(format=format))
        assert len(one.paths) == 1  # what is named is read
    assert len(Input.parse(str(tmp_path / "pg19")).paths) == 4


def test_names_that_look_like_globs_or_assignments_and_hidden_folders(raw, tmp_path):
    folder = tmp_path / "x=y [1]"
    (folder / ".cache").mkdir(parents=True)
    for name in ("ä é.jsonl", ".cache/a.metadata", "_SUCCESS"):
        (folder / name).write_text('{"text": "One."}\n')
    assert [os.path.basename(path) for path in Input.parse(str(folder)).paths] == ["ä é.jsonl"]
    assert Input.parse(f"{folder}/ä é.jsonl").source == "ä é"


def test_output_below_the_input_is_no_input_of_the_next_run(raw, tokenizer, tmp_path):
    folder = tmp_path / "text"
    folder.mkdir()
    (folder / "a.jsonl").write_text('{"text": "One."}\n')
    for _ in range(2):
        manifest = build(str(folder), folder / "documents", tokenizer)
    assert [entry["path"] for entry in manifest.inputs] == ["text:a.jsonl"]


def test_cut_and_empty_files_count_as_files_against_the_budget(tokenizer, tmp_path):
    folder = tmp_path / "raw"
    folder.mkdir()
    for number in range(10):
        lines = [json.dumps({"text": f"Text {random.random()} of file {number}."}).encode() for _ in range(200)]
        packed = gzip.compress(b"\n".join(lines))
        packed = packed[: len(packed) // 50] if number < 4 else packed
        (folder / f"{number}.jsonl.gz").write_bytes(b"" if number == 4 else packed)
    with pytest.raises(FarspanError, match=r"5 of 10 files are damaged \(truncated_file 5\), more than .* of 1.00%"):
        build(str(folder), tmp_path / "documents", tokenizer)
    manifest = build(str(folder), tmp_path / "documents", tokenizer, error_budget=0.5)
    count = manifest.counts["raw"]
    assert (count["files"], count["damaged_files"], manifest.rejects) == (10, 5, {"truncated_file": 5})
    assert count["bytes"] == sum(path.stat().st_size for path in folder.iterdir())
    assert 0 <= count["lost_bytes"] < 1000
    assert count["read"] == count["written"] + count["rejected"]


def test_a_refuted_checksum_counts_its_bytes_against_the_budget(tokenizer, tmp_path):
    folder = tmp_path / "raw"
    folder.mkdir()
    for name in ("a", "b"):
        lines = [json.dumps({"text": f"Text {random.random()}."}).encode() for _ in range(200)]
        (folder / f"{name}.jsonl").write_bytes(b"\n".join(lines))
    packed = bytearray(gzip.compress((folder / "a.jsonl").read_bytes() * 3))
    packed[-6] ^= 1
    (folder / "c.jsonl.gz").write_bytes(packed)
    manifest = build(str(folder), tmp_path / "documents", tokenizer, error_budget=0.4)
    assert manifest.counts["raw"]["lost_bytes"] == len(packed)
    assert manifest.totals["documents"] == 400


def test_a_damaged_file_of_several_tasks_is_one_file(tokenizer, tmp_path):
    path = tmp_path / "a.arrow"
    table = pa.table({"text": [f"Text number {n} of a table." for n in range(400)]})
    with pa.ipc.new_file(str(path), table.schema) as writer:
        writer.write_table(table, max_chunksize=20)
    data = bytearray(path.read_bytes())
    for place in (len(data) // 4, len(data) * 3 // 4):
        data[place : place + 400] = bytes(b"\xff" * 400)
    path.write_bytes(data)
    manifest = build(str(path), tmp_path / "documents", tokenizer, task_bytes=500, error_budget=1.0)
    count = manifest.counts["a"]
    assert (count["files"], count["damaged_files"]) == (1, 1)
    assert sum(manifest.rejects.values()) >= 1
    assert 0 < count["lost_bytes"] <= count["bytes"]


def test_links_and_special_files_beside_the_text(tokenizer, tmp_path):
    folder = tmp_path / "raw"
    (folder / "real").mkdir(parents=True)
    (folder / "real" / "a.jsonl").write_text('{"text": "One."}\n')
    os.mkfifo(folder / "pipe")
    os.symlink("nowhere.jsonl", folder / "dangling.jsonl")
    os.symlink("..", folder / "real" / "circle")
    for number, pattern in enumerate((str(folder), f"{folder}/**")):
        output = tmp_path / f"documents{number}"
        with pytest.raises(FarspanError, match=r"2 of 3 files are damaged \(dangling_link 1, not_a_file 1\)"):
            build(pattern, output, tokenizer)
        manifest = build(pattern, output, tokenizer, error_budget=0.7)
        assert [row["document_id"] for row in all_rows(output)] == ["raw:real/a.jsonl:0"]
        assert (manifest.counts["raw"]["files"], manifest.counts["raw"]["repeated_links"]) == (3, 1)
        assert {row["path"]: row["reason"] for row in rejects(output)} == {
            "dangling.jsonl": "dangling_link",
            "pipe": "not_a_file",
        }
    for name in ("pipe", "dangling.jsonl"):
        with pytest.raises(FarspanError, match=name):
            Input.parse(str(folder / name))


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
    with pytest.raises(FarspanError, match="--task-files 0"):
        job(str(folder), tmp_path / "none", tokenizer, task_files=0)


LISTED = """
import sys
from corpora.readers import ReadOptions
from pipelines.documents.inputs import Input
assert sys.getfilesystemencoding() == sys.argv[2], sys.getfilesystemencoding()
item = Input.parse(sys.argv[1], ReadOptions())
sys.stdout.buffer.write("\\n".join([item.source, *map(item.relative, item.paths)]).encode())
"""


@pytest.mark.parametrize("encoding", ["utf-8", "iso8859-1"])
def test_ids_are_the_bytes_of_names_in_any_locale(tmp_path, encoding):
    folder = tmp_path / "caf\u00e9"
    folder.mkdir()
    for name in ("\u00e4 \u00e9.txt", "\u4e16.txt"):
        (folder / name).write_text("One.")
    environment = {**os.environ, "PYTHONUTF8": "1"}
    if encoding != "utf-8":
        made = subprocess.run(
            ["localedef", "-i", "POSIX", "-f", "ISO-8859-1", "-c", str(tmp_path / "xx_XX.ISO-8859-1")],
            capture_output=True,
            check=False,
        )
        if not (tmp_path / "xx_XX.ISO-8859-1").is_dir():
            pytest.skip(f"no Latin-1 locale can be made here: {made.stderr.decode()}")
        environment |= {"PYTHONUTF8": "0", "LOCPATH": str(tmp_path), "LC_ALL": "xx_XX.ISO-8859-1"}
    told = subprocess.run(
        [sys.executable, "-c", LISTED, f"n\u00e4me={folder}", encoding],
        env=environment,
        stdout=subprocess.PIPE,
        check=True,
    )
    assert told.stdout.decode().split("\n") == ["n\u00e4me", "\u00e4 \u00e9.txt", "\u4e16.txt"]


def test_a_text_that_a_tokenizer_takes_for_special_tokens_is_a_dead_letter(tmp_path):
    """Only one that spells the name under which an encoder hides a piece: a noncharacter, and the token."""
    (tmp_path / "tokenizer.json").write_bytes(JSON["whole words"])
    lines = [{"text": text} for text in ("ab <mask> text|>", "\U0010ffff<mask> ab", "<mask>")]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, lines)))
    output = str(tmp_path / "documents")
    inputs = f"made={tmp_path / 'a.jsonl'}"
    manifest = build(inputs, output, str(tmp_path / "tokenizer.json"), error_budget=1.0)
    assert manifest.rejects == {"special_token": 1}
    assert manifest.counts["made"]["written"] == 2
    assert [(row["record"], row["raw"].decode()) for row in rejects(output)] == [("a.jsonl:29", "\U0010ffff<mask> ab")]
    assert verify(output) == []
