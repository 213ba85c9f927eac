"""Faults of a store, and what is wrong with names, keys and artefacts there: one line that says so."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

import pytest

from corpora.errors import FarspanError
from corpora.packing.options import Packing
from corpora.storage import files
from corpora.storage.files import read_bytes, write_bytes
from pipelines.corpus import random as random_corpus
from pipelines.corpus.options import RandomCorpus
from pipelines.engine.options import Engine
from pipelines.engine.run import run_job
from tests.pipelines.integration.stores import SHARDS, chain, copy, files_of, same_artefact


def test_a_shard_whose_writer_fails_is_not_there_and_the_next_call_finishes(run, store, bucket, local, monkeypatch):
    copy(f"{local}/documents", f"{bucket}/documents")
    _, command, _ = chain(bucket, "")
    write = random_corpus.write_corpus_shard

    def fail(task, rows, *rest):
        if task.payload["bucket"] != 1:
            return write(task, rows, *rest)
        with files.create(task.payload["shard"]) as file:
            file.write(bytes(1000))
            raise FarspanError("the disk of dreams is full")

    with monkeypatch.context() as patch:
        patch.setattr(random_corpus, "write_corpus_shard", fail)
        status, _, err = run(*command, *store.flags)
    assert status == 1
    assert err.splitlines() == [
        "farspan: task pack-00001 failed: the disk of dreams is full",
        "finished tasks are kept: correct this, then run the same command again to resume",
    ]
    shards = [name for name in files_of(f"{bucket}/corpus") if name.startswith("shards/")]
    assert "shards/part-00001-of-00004.arrow" not in shards
    assert not [name for name in shards if ".tmp" in name]
    status, _, err = run(*command, *store.flags)
    assert (status, "resuming" in err) == (0, True)
    same_artefact(f"{bucket}/corpus", f"{local}/corpus")


def test_a_store_that_is_busy_for_seconds_ends_no_job(run, store, bucket, local, monkeypatch):
    monkeypatch.setenv("FARSPAN_STORE_PATIENCE", "60")
    copy(f"{local}/documents", f"{bucket}/documents")
    _, command, _ = chain(bucket, "")
    write, busy = random_corpus.write_corpus_shard, []

    def be_busy(*arguments):
        store.unavailable = 6
        busy.append(True)
        return write(*arguments)

    monkeypatch.setattr(random_corpus, "write_corpus_shard", be_busy)
    status, _, err = run(*command, *store.flags)
    assert (status, store.unavailable, len(busy)) == (0, 0, int(SHARDS)), err
    same_artefact(f"{bucket}/corpus", f"{local}/corpus")


def test_a_second_job_in_a_folder_is_refused_by_name(run, store, bucket, local, monkeypatch):
    copy(f"{local}/documents", f"{bucket}/documents")
    _, command, _ = chain(bucket, "")
    write, refused = random_corpus.write_corpus_shard, []

    def meet(*arguments):
        if not refused:
            options = RandomCorpus(
                documents=f"{bucket}/documents",
                output=f"{bucket}/corpus",
                packing=Packing(sequence_length=256),
                shards=int(SHARDS),
            )
            refused.append(True)
            engine = Engine(workers=1, beam_flags=tuple(store.flags))
            with (
                ThreadPoolExecutor(1) as another,
                pytest.raises(FarspanError, match=rf"another farspan job works here \(process {os.getpid()} on "),
            ):
                another.submit(run_job, random_corpus.plan(options), engine).result()
        return write(*arguments)

    monkeypatch.setattr(random_corpus, "write_corpus_shard", meet)
    assert run(*command, *store.flags)[0] == 0
    assert len(refused) == 1
    same_artefact(f"{bucket}/corpus", f"{local}/corpus")
    assert files_of(f"{bucket}/corpus") == files_of(f"{local}/corpus")


def test_a_damaged_shard_is_named_with_its_place(run, store, bucket, local):
    copy(f"{local}/documents", f"{bucket}/documents")
    _, command, _ = chain(bucket, "")
    path = next(path for path in files.walk(f"{bucket}/documents/shards") if "part-00002" in path)
    whole = read_bytes(path)
    for damaged in (whole[: len(whole) // 2], b""):
        write_bytes(path, damaged)
        status, _, err = run(*command, *store.flags)
        assert status == 1
        assert f"task spill-00002 failed: {path}: not a readable shard" in err
        assert "Traceback" not in err
    write_bytes(path, whole)
    assert run(*command, *store.flags)[0] == 0
    same_artefact(f"{bucket}/corpus", f"{local}/corpus")


def commands_of(documents, raw, output, tokenizer):
    yield ["documents", "--input", f"{raw}/*.jsonl", "--tokenizer", tokenizer, "--output", f"{output}/documents"]
    yield ["corpus", "random", "--documents", documents, "--sequence-length", "256", "--output", f"{output}/corpus"]


@pytest.mark.parametrize("kind", [0, 1], ids=["documents", "corpus random"])
@pytest.mark.parametrize("wrong", ["input", "output"])
def test_a_wrong_bucket_is_one_line(run, store, raw, local, kind, wrong):
    copy(f"{local}/documents", f"{raw}/documents")
    places = {"input": raw, "output": raw, wrong: "s3://nowhere"}
    read = places["input"]
    command = list(commands_of(f"{read}/documents", f"{read}/raw", places["output"], f"{local}/tokenizer"))[kind]
    status, _, err = run(*command, *store.flags)
    assert status == 1
    assert len(err.splitlines()) == 1
    assert err.startswith("farspan: s3://nowhere")
    assert "make the bucket, or mend its name or --s3_endpoint_url" in err


@pytest.mark.parametrize("kind", [0, 1], ids=["documents", "corpus random"])
def test_a_wrong_key_and_a_wrong_address_are_one_line(run, store, raw, local, kind):
    command = list(commands_of(f"{raw}/documents", f"{raw}/raw", raw, f"{local}/tokenizer"))[kind]
    store.check_keys(True)
    try:
        status, _, err = run(*command, *store.flags_of("stranger"))
    finally:
        store.check_keys(False)
    assert (status, len(err.splitlines())) == (1, 1)
    assert err.startswith("farspan: s3://bucket")
    assert "check --s3_access_key_id" in err
    away = [flag.replace(store.url, "http://127.0.0.1:9") for flag in store.flags]
    status, _, err = run(*command, *away)
    assert (status, len(err.splitlines())) == (1, 1)
    assert err.startswith("farspan: s3://bucket")
    assert "check --s3_endpoint_url" in err


def test_an_unknown_scheme_is_one_line(run, local):
    for command in commands_of("drive://host/documents", "drive://host/raw", f"{local}/none", f"{local}/tokenizer"):
        status, _, err = run(*command)
        assert (status, len(err.splitlines())) == (1, 1)
        assert "no file system drive:// is installed" in err


def test_an_output_that_can_only_be_read_is_one_line(run, local, tmp_path):
    raw = tmp_path / "raw"
    raw.mkdir()
    (raw / "a.jsonl").write_text('{"text": "A text of a few words."}')
    place = f"local://{tmp_path}/out"
    for command in commands_of(f"{local}/documents", str(raw.parent), place, f"{local}/tokenizer"):
        command = [text.replace(f"{raw.parent}/*", f"{raw}/*") for text in command]
        status, _, err = run(*command)
        assert (status, len(err.splitlines())) == (1, 1), err
        assert "local:// is for reading; write to a folder on disk, s3://, gs:// or abfs://" in err
    assert not (tmp_path / "out").exists()


def test_damage_in_the_bucket_is_found_where_it_lies(run, store, bucket, local):
    copy(f"{local}/corpus", f"{bucket}/corpus")
    shards = files.walk(f"{bucket}/corpus/shards")
    whole = read_bytes(shards[1])
    write_bytes(shards[1], whole[:-1] + bytes([whole[-1] ^ 1]))
    files.delete(shards[2:3])
    status, out, _ = run("verify", f"{bucket}/corpus", *store.flags)
    assert status == 1
    assert "part-00001-of-00004.arrow: sha256" in out
    assert "part-00002-of-00004.arrow: missing" in out
