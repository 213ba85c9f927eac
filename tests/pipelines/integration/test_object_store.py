"""Jobs on an object store: the same bytes as on local disk; faults of the store, and wrong names and keys."""

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from corpora.errors import FarspanError
from corpora.packing.options import Packing
from corpora.storage import files
from corpora.storage.files import read_bytes, write_bytes
from corpora.storage.manifest_file import read_manifest
from corpora.tokenizers.load import load_tokenizer
from pipelines.corpus import random as random_corpus
from pipelines.corpus.options import RandomCorpus
from pipelines.documents.inputs import Input
from pipelines.engine.options import Engine, use_store_flags
from pipelines.engine.run import run_job
from pipelines.inspect.verify import verify
from pipelines.shuffle.corpus_shard import PackBucket
from tests.artefacts import make_documents
from tests.pipelines.integration.stores import SHARDS, chain, files_of, same_artefact
from tests.vectors import copy, make_vectors


def test_text_to_masks_on_s3_has_the_bytes_of_a_local_run(run, store, raw, local, tmp_path):
    use_store_flags([])  # the settings are in the command's flags alone
    for command in chain(raw, f"{local}/tokenizer"):
        assert run(*command, *store.flags)[0] == 0
    for kind in ("documents", "corpus", "masks"):
        same_artefact(f"{raw}/{kind}", f"{local}/{kind}")
        assert files_of(f"{raw}/{kind}") == files_of(f"{local}/{kind}")  # nothing unfinished stays
    assert not [path for path in files.walk(raw) if b"secret" in read_bytes(path)]
    copy(raw, str(tmp_path))
    for kind in ("documents", "corpus", "masks"):  # the masks find the corpus that was copied with them
        assert verify(str(tmp_path / kind)) == []


def test_worker_processes_get_the_settings_of_the_command(run, store, bucket, local):
    """Nothing but the driver tells them: flags are the driver's, and the environment holds none."""
    copy(f"{local}/documents", f"{bucket}/documents")
    use_store_flags([])
    _, command, _ = chain(bucket, "", workers=2)
    assert run(*command, *store.flags)[0] == 0
    same_artefact(f"{bucket}/corpus", f"{local}/corpus")


@pytest.fixture
def packing(store, bucket, local) -> list[str]:
    """The command of a corpus, whose documents are in the bucket."""
    copy(f"{local}/documents", f"{bucket}/documents")
    _, command, _ = chain(bucket, "")
    return [*command, *store.flags]


def test_a_file_a_folder_and_a_glob_name_inputs_as_on_local_disk(raw, local):
    for pattern in ("raw", "raw/", "raw/*.jsonl", "raw/**.jsonl", "raw/b.jsonl", "raw/more"):
        there, here = Input.parse(f"{raw}/{pattern}"), Input.parse(f"{local}/{pattern}")
        assert there.source == here.source
        expected = [here.relative(path) for path in here.paths]
        if "**" in pattern:  # on local disk ** alone is no way through folders
            expected.append("more/c.jsonl")
        assert [there.relative(path) for path in there.paths] == expected
    named = Input.parse(f"wiki={raw}/raw/*.jsonl")
    assert (named.source, len(named.paths)) == ("wiki", 2)
    assert Input.parse(raw).source == "bucket"
    with pytest.raises(FarspanError, match="matches no file"):
        Input.parse(f"{raw}/none")


SLOW_PACK = """
import time
from pipelines.shuffle.corpus_shard import PackBucket
pack = PackBucket.__call__
def slowly(self, task, report):
    if int(task.payload["index"]) >= 2:
        time.sleep(60)
    return pack(self, task, report)
PackBucket.__call__ = slowly
from pipelines.cli import main; main()
"""


@pytest.mark.slow
def test_killed_half_way_and_resumed(run, store, bucket, local, packing):
    command = [sys.executable, "-c", SLOW_PACK, *packing]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    for _ in range(1200):
        if f"{bucket}/corpus/_work/pack-00001.json" in files.walk(f"{bucket}/corpus/_work"):
            break
        assert process.poll() is None, "the job ended before it could be killed"
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert "manifest.json" not in files_of(f"{bucket}/corpus")
    store.requests.clear()
    status, _, err = run(*packing)
    assert (status, "resuming" in err) == (0, True)
    assert (store.asked("PUT", "shards/part-00000"), store.asked("PUT", "shards/part-00002")) == (0, 1)
    same_artefact(f"{bucket}/corpus", f"{local}/corpus")
    assert files_of(f"{bucket}/corpus") == files_of(f"{local}/corpus")


def test_finalize_ends_a_job_on_s3(run, store, raw, local):
    write_bytes(f"{raw}/raw/bad.jsonl", b'{"text": 7}\n' * 30)
    command, *_ = chain(raw, f"{local}/tokenizer")
    status, _, err = run(*command, *store.flags)
    assert (status, "error budget" in err) == (1, True)
    status, out, _ = run("finalize", f"{raw}/documents/", "--error-budget", "0.5", *store.flags)
    assert (status, "30 rejected" in out) == (0, True)
    assert read_manifest(f"{raw}/documents").rejects == {"not_a_string": 30}


def test_a_tokenizer_is_trained_on_text_in_s3(run, store, raw, local, tmp_path):
    for root, flags in ((raw, store.flags), (local, [])):
        arguments = ["--input", f"{root}/raw", "--vocab-size", "300", "--output", tmp_path / str(len(flags))]
        assert run("tokenizer", "train", *arguments, *flags)[0] == 0
    first, second = ((tmp_path / name / "tokenizer.json").read_bytes() for name in ("0", "4"))
    assert first == second


def test_the_tokenizer_too_may_lie_in_the_bucket(bucket, local):
    copy(f"{local}/tokenizer", f"{bucket}/tokenizer")
    expected = load_tokenizer(f"{local}/tokenizer").fingerprint
    for path in ("tokenizer", "tokenizer/", "tokenizer/tokenizer.json"):
        assert load_tokenizer(f"{bucket}/{path}").fingerprint == expected
    with pytest.raises(FarspanError, match="tokenizer s3://bucket/none: no such file or folder"):
        load_tokenizer(f"{bucket}/none")
    with pytest.raises(FarspanError, match=r"tokenizer s3://bucket/tokenizer/config\.json: "):
        write_bytes(f"{bucket}/tokenizer/config.json", b"{}")
        load_tokenizer(f"{bucket}/tokenizer/config.json")


def test_artefacts_are_looked_at_where_they_lie(run, store, bucket, local):
    """With the flags of jobs; the masks find their corpus in the bucket, and each shard is fetched once."""
    copy(f"{local}/corpus", f"{bucket}/corpus")
    copy(f"{local}/masks", f"{bucket}/masks")
    use_store_flags([])
    for command in (["verify"], ["stats", "--json"], ["show", "--row", "5"]):
        for kind in ("corpus", "masks"):
            store.requests.clear()
            status, out, err = run(*command, f"{bucket}/{kind}", *store.flags)
            assert (status, err) == (0, "")
            there, here = out.replace(bucket, ""), run(*command, f"{local}/{kind}")[1].replace(local, "")
            assert there == here
            fetched = [path for method, path, *_ in store.requests if method == "GET" and "/shards/" in path]
            assert fetched
            assert len(set(fetched)) == len(fetched) or command[0] == "stats"
    status, _, err = run("verify", f"{bucket}/corpus", "--s3_endpoint", store.url)
    assert (status, err.splitlines()[0][:48]) == (1, "farspan: --s3_endpoint: unknown argument; see fa")


def test_vectors_to_a_linked_corpus_on_s3_have_the_bytes_of_a_local_run(run, store, bucket, tmp_path):
    here = str(tmp_path)
    make_documents(f"{here}/documents")
    make_vectors(f"{here}/vectors", f"{here}/documents")
    copy(here, bucket)
    for root, flags in ((here, []), (bucket, store.flags)):
        for command in (
            ["cluster", "--vectors", f"{root}/vectors", "--centroids", "2"],
            ["neighbours", "--clusters", f"{root}/cluster", "--k", "5"],
            ["corpus", "linked", "--documents", f"{root}/documents", "--neighbours", f"{root}/neighbours",
             "--sequence-length", "256"],
        ):  # fmt: skip
            assert run(*command, "--output", f"{root}/{command[0]}", "--workers", "1", *flags)[0] == 0
    for kind in ("cluster", "neighbours", "corpus"):
        same_artefact(f"{bucket}/{kind}", f"{here}/{kind}")


def test_masks_whose_corpus_stayed_in_the_bucket_find_it_there(run, store, bucket, local, tmp_path):
    copy(f"{local}/corpus", f"{bucket}/corpus")
    command = ["mask", "span", "--preset", "t5", "--corpus", f"{bucket}/corpus", "--output", tmp_path / "masks"]
    assert run(*command, *store.flags)[0] == 0
    assert run("verify", tmp_path / "masks", *store.flags)[0] == 0
    files.delete([f"{bucket}/corpus/manifest.json"])
    status, _, err = run("verify", tmp_path / "masks", *store.flags)
    assert (status, len(err.splitlines())) == (1, 1)
    assert "its corpus is not at s3://bucket/corpus; give its folder: --corpus FOLDER" in err
    assert run("verify", tmp_path / "masks", "--corpus", f"{local}/corpus")[0] == 0


@pytest.mark.slow
def test_many_spills_are_merged_into_few_and_the_bytes_stay(store, bucket, tmp_path):
    """With n spills, b buckets and fan-in f: n reads to merge and n / f * b to pack, in place of n * b."""
    spills, buckets, fan_in = 8, 6, 4
    here = make_documents(str(tmp_path / "documents"), shards=spills)
    copy(here, f"{bucket}/documents")

    def build(documents, output, fan_in):
        store.requests.clear()
        packing = Packing(sequence_length=256)
        options = RandomCorpus(documents=documents, output=output, packing=packing, shards=buckets, fan_in=fan_in)
        run_job(random_corpus.plan(options), Engine(workers=1, beam_flags=tuple(store.flags)))
        return store.asked("GET", "_work/spill-"), store.asked("GET", "_work/merge-")

    receipts = spills  # each read once, at the end
    build(here, str(tmp_path / "corpus"), spills)
    assert build(f"{bucket}/documents", f"{bucket}/direct", spills) == (spills * buckets + receipts, 0)
    merged = spills // fan_in
    assert build(f"{bucket}/documents", f"{bucket}/merged", fan_in) == (spills + receipts, merged * buckets + merged)
    for output in ("direct", "merged"):
        same_artefact(f"{bucket}/{output}", str(tmp_path / "corpus"))
        assert not [name for name in files_of(f"{bucket}/{output}") if name.startswith("_work")]


def test_a_shard_whose_writer_fails_is_not_there_and_the_next_call_finishes(run, bucket, local, packing, monkeypatch):
    pack = PackBucket.__call__

    def fail(self, task, report):
        if task.payload["index"] != 1:
            return pack(self, task, report)
        with files.create(task.payload["shard"]) as file:
            file.write(bytes(1000))
            raise FarspanError("the disk of dreams is full")

    with monkeypatch.context() as patch:
        patch.setattr(PackBucket, "__call__", fail)
        status, _, err = run(*packing)
    assert status == 1
    assert err.splitlines() == [
        "farspan: task pack-00001 failed: the disk of dreams is full",
        "finished tasks are kept: correct this, then run the same command again to resume",
    ]
    shards = [name for name in files_of(f"{bucket}/corpus") if name.startswith("shards/")]
    assert "shards/part-00001-of-00004.arrow" not in shards
    assert not [name for name in shards if ".tmp" in name]
    status, _, err = run(*packing)
    assert (status, "resuming" in err) == (0, True)
    same_artefact(f"{bucket}/corpus", f"{local}/corpus")


def test_a_store_that_is_busy_for_seconds_ends_no_job(run, store, bucket, local, packing, monkeypatch):
    monkeypatch.setenv("FARSPAN_STORE_PATIENCE", "60")
    pack, busy = PackBucket.__call__, []

    def be_busy(*arguments):
        store.unavailable = 6
        busy.append(True)
        return pack(*arguments)

    monkeypatch.setattr(PackBucket, "__call__", be_busy)
    status, _, err = run(*packing)
    assert (status, store.unavailable, len(busy)) == (0, 0, int(SHARDS)), err
    same_artefact(f"{bucket}/corpus", f"{local}/corpus")


def test_a_second_job_in_a_folder_is_refused_by_name(run, store, bucket, local, packing, monkeypatch):
    pack, refused = PackBucket.__call__, []
    documents, output, rows = f"{bucket}/documents", f"{bucket}/corpus", Packing(sequence_length=256)
    options = RandomCorpus(documents=documents, output=output, packing=rows, shards=int(SHARDS))
    engine = Engine(workers=1, beam_flags=tuple(store.flags))
    here = pytest.raises(FarspanError, match=rf"another farspan job works here \(process {os.getpid()} on ")

    def meet(*arguments):
        if not refused:
            refused.append(True)
            with ThreadPoolExecutor(1) as another, here:
                another.submit(run_job, random_corpus.plan(options), engine).result()
        return pack(*arguments)

    monkeypatch.setattr(PackBucket, "__call__", meet)
    assert run(*packing)[0] == 0
    assert len(refused) == 1
    same_artefact(f"{bucket}/corpus", f"{local}/corpus")
    assert files_of(f"{bucket}/corpus") == files_of(f"{local}/corpus")


def test_a_damaged_shard_is_named_with_its_place(run, bucket, local, packing):
    path = next(path for path in files.walk(f"{bucket}/documents/shards") if "part-00002" in path)
    whole = read_bytes(path)
    for damaged in (whole[: len(whole) // 2], b""):
        write_bytes(path, damaged)
        status, _, err = run(*packing)
        assert (status, "Traceback" in err) == (1, False)
        assert f"task spill-00002 failed: {path}: not a readable shard" in err
    write_bytes(path, whole)
    assert run(*packing)[0] == 0
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
    assert (status, len(err.splitlines())) == (1, 1)
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
