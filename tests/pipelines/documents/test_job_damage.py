"""Bad records, damaged files and the error budget: the neighbours stay, the damage is counted."""

import bz2
import gzip
import json
import lzma
import os
import random

import pyarrow as pa
import pytest
import zstandard

from corpora.errors import FarspanError
from corpora.readers import ReadOptions
from corpora.storage import files
from corpora.verify.artefact import verify
from pipelines.documents.inputs import Input
from pipelines.engine.options import Engine
from pipelines.engine.run import run_job
from tests.artefacts import all_rows
from tests.pipelines.documents.jobs import build, job, rejects

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


def lines_of(count):
    return b"".join(json.dumps({"text": f"Text {random.random()}, number {n}."}).encode() + b"\n" for n in range(count))


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
    whole = gzip.compress(lines_of(400))
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


def test_cut_and_empty_files_count_as_files_against_the_budget(tokenizer, tmp_path):
    folder = tmp_path / "raw"
    folder.mkdir()
    for number in range(10):
        packed = gzip.compress(lines_of(200))
        packed = packed[: len(packed) // 50] if number < 4 else packed
        (folder / f"{number}.jsonl.gz").write_bytes(b"" if number == 4 else packed)
    with pytest.raises(FarspanError, match=r"5 of 10 files are damaged \(truncated_file 5\), more than .* of 1.00%"):
        build(str(folder), tmp_path / "documents", tokenizer)
    manifest = build(str(folder), tmp_path / "documents", tokenizer, error_budget=0.5)
    count = manifest.counts["raw"]
    assert (count["files"], count["damaged_files"], manifest.rejects) == (10, 5, {"truncated_file": 5})
    assert count["bytes"] == sum(path.stat().st_size for path in folder.iterdir())
    assert count["lost_bytes"] == sum((folder / f"{number}.jsonl.gz").stat().st_size for number in range(4))
    assert count["read"] == count["written"] + count["rejected"]


CUTS = {  # name -> what is left of 2,000 documents; of an odd number of parts, half ends within one
    "gz": lambda: gzip.compress(lines_of(2000)),
    "bz2": lambda: bz2.compress(lines_of(2000)),
    "xz": lambda: lzma.compress(lines_of(2000)),
    "zst": lambda: zstandard.ZstdCompressor(write_content_size=False).compress(lines_of(2000)),
    "gz of 39 members": lambda: b"".join(gzip.compress(lines_of(50)) for _ in range(39)),
    "zst of 39 frames": lambda: b"".join(zstandard.compress(lines_of(50)) for _ in range(39)),
}


@pytest.fixture(scope="module")
def small_files(tmp_path_factory):
    """199 files of one document."""
    folder = tmp_path_factory.mktemp("small")
    for number in range(199):
        (folder / f"{number}.jsonl").write_bytes(lines_of(1))
    return str(folder)


@pytest.mark.parametrize("kind", CUTS)
def test_half_of_a_compressed_file_among_many_small_ones_stops_the_job(kind, small_files, tokenizer, tmp_path):
    packed = CUTS[kind]()
    cut = tmp_path / f"cut.jsonl.{kind.partition(' ')[0]}"
    cut.write_bytes(packed[: len(packed) // 2])
    inputs = [f"small={small_files}", f"cut={cut}"]
    with pytest.raises(FarspanError, match=rf"{len(packed) // 2:,} of [\d,]+ bytes lie in damaged places.* of 1.00%"):
        build(inputs, tmp_path / "documents", tokenizer)
    manifest = build(inputs, tmp_path / "documents", tokenizer, error_budget=1.0)
    assert manifest.counts["cut"]["lost_bytes"] == len(packed) // 2
    assert verify(str(tmp_path / "documents")) == []


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("blank.jsonl", b"\n" * 100_000),
        ("one-line.jsonl", lines_of(2000).replace(b"\n", b"\r")),
        ("skipped.jsonl.zst", b"\x50\x2a\x4d\x18" + (100_000).to_bytes(4, "little") + bytes(100_000)),
        ("first-block.jsonl.zst", zstandard.compress(lines_of(2000))[:-100]),
    ],
)
def test_a_file_that_yields_nothing_is_lost(name, data, small_files, tokenizer, tmp_path):
    (tmp_path / name).write_bytes(data)
    inputs = [f"small={small_files}", f"nothing={tmp_path / name}"]
    with pytest.raises(FarspanError, match=f"{len(data):,} of [\\d,]+ bytes lie in damaged places"):
        build(inputs, tmp_path / "documents", tokenizer)


def test_files_that_say_that_they_are_empty_are_not_lost(tokenizer, tmp_path):
    folder = tmp_path / "raw"
    folder.mkdir()
    (folder / "a.jsonl").write_bytes(lines_of(1))
    for name, data in (("b.jsonl", b""), ("c.jsonl", b"\n"), ("d.jsonl.gz", gzip.compress(b"")),
                       ("e.jsonl.bz2", bz2.compress(b"")), ("f.jsonl.xz", lzma.compress(b"")),
                       ("g.jsonl.zst", zstandard.compress(b""))):  # fmt: skip
        (folder / name).write_bytes(data)
    count = build(str(folder), tmp_path / "documents", tokenizer).counts["raw"]
    assert (count["files"], count["damaged_files"], count["lost_bytes"], count["written"]) == (7, 0, 0, 1)


def test_a_cut_file_in_a_store_counts_as_lost(store, bucket, small_files, tokenizer, tmp_path):
    packed = gzip.compress(lines_of(2000))
    files.write_bytes(f"{bucket}/cut.jsonl.gz", packed[: len(packed) // 2])
    with pytest.raises(FarspanError, match=rf"{len(packed) // 2:,} of [\d,]+ bytes lie in damaged places"):
        build([f"small={small_files}", f"cut={bucket}/cut.jsonl.gz"], tmp_path / "documents", tokenizer)


def test_a_refuted_checksum_counts_its_bytes_against_the_budget(tokenizer, tmp_path):
    folder = tmp_path / "raw"
    folder.mkdir()
    for name in ("a", "b"):
        (folder / f"{name}.jsonl").write_bytes(lines_of(200))
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


@pytest.mark.parametrize("place", ["disk", "store"])
def test_an_input_that_changed_is_refused_until_it_is_restored(place, store, bucket, tokenizer, tmp_path):
    """The file that no task has read yet decides too: its ranges were planned by its former contents."""
    folder = str(tmp_path / "raw") if place == "disk" else f"{bucket}/raw"
    former, later = (b'{"text": "%s text."}\n' % word for word in (b"Former", b"Latest"))
    for name in ("a", "b"):
        files.write_bytes(f"{folder}/{name}.jsonl", former)
    output, path = tmp_path / "documents", f"{folder}/b.jsonl"
    begun = job(folder, output, tokenizer, task_files=1)
    times = os.stat(path) if place == "disk" else None
    files.write_bytes(path, later)
    with pytest.raises(FarspanError, match=r"b.jsonl: was written to or replaced while the job ran; put it back"):
        run_job(begun, Engine(workers=1))
    for engine in (Engine(workers=1), Engine(engine="cooperative")):
        with pytest.raises(FarspanError, match=r"raw:b.jsonl: was written to or replaced since the job began; put it"):
            build(folder, output, tokenizer, engine, task_files=1)
    files.write_bytes(path, former)
    if times:
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    build(folder, output, tokenizer, task_files=1)
    assert [row["document_id"] for row in all_rows(output)] == ["raw:a.jsonl:0", "raw:b.jsonl:0"]
    assert verify(str(output)) == []


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
        found = {row["path"]: row["reason"] for row in rejects(output)}
        assert found == {"dangling.jsonl": "dangling_link", "pipe": "not_a_file"}
    for name in ("pipe", "dangling.jsonl"):
        with pytest.raises(FarspanError, match=name):
            Input.parse(str(folder / name))
