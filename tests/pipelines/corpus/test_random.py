"""The same bytes whatever runs the job, however often it is killed."""

import itertools
import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from unittest.mock import Mock

import numpy as np
import pytest

from corpora.errors import FarspanError
from corpora.packing.options import Packing
from corpora.storage.manifest_file import read_manifest, write_manifest
from corpora.verify.artefact import verify
from pipelines.corpus.options import RandomCorpus
from pipelines.corpus.random import plan
from pipelines.engine.options import Engine
from pipelines.engine.run import run_job
from tests.artefacts import all_rows, digests, make_documents
from tests.killing import run_killed
from tests.pipelines.corpus.parts import rows_of
from tests.pipelines.engine.jobs import job_service

SHARDS = 5


@pytest.fixture(scope="module")
def documents(tmp_path_factory):
    return make_documents(str(tmp_path_factory.mktemp("documents") / "documents"), shards=4)


def job(documents, output, **options):
    return plan(
        RandomCorpus(
            documents=documents, output=str(output), packing=Packing(sequence_length=256), shards=SHARDS, **options
        )
    )


def build(documents, output, engine=Engine(workers=1), **options):  # noqa: B008 (frozen)
    return run_job(job(documents, output, **options), engine)


@pytest.fixture(scope="module")
def reference(documents, tmp_path_factory):
    folder = str(tmp_path_factory.mktemp("reference") / "corpus")
    build(documents, folder)
    return folder


def test_the_corpus_is_sound_and_holds_every_training_document_once(documents, reference):
    assert verify(reference) == []
    expected = {row["document_id"]: row["tokens"] for row in all_rows(documents) if not row["held_out"]}
    found = {}
    for _, row in rows_of(reference):
        for part in row:
            found.setdefault(part.document, []).extend(part.tokens)
    assert found == expected


def test_the_shuffle_mixes_shards_of_the_input(reference):
    names = dict.fromkeys(part.document for _, row in rows_of(reference) for part in row)
    inputs = [name.split(":")[1] for name in names]
    changes = sum(a != b for a, b in itertools.pairwise(inputs))
    assert changes > len(inputs) / 2


def test_the_splits_are_disjoint_and_complete(documents, reference, tmp_path):
    held = build(documents, tmp_path / "held", split="held-out")
    train = read_manifest(reference)
    parent = read_manifest(documents)
    assert held.totals["documents"] == parent.totals["held_out_documents"]
    assert train.totals["documents"] + held.totals["documents"] == parent.totals["documents"]
    assert train.totals["tokens"] + held.totals["tokens"] == parent.totals["tokens"]


def test_another_seed_is_another_order(documents, reference, tmp_path):
    build(documents, tmp_path / "other", seed=1)
    assert digests(tmp_path / "other") != digests(reference)


def test_best_fit_cuts_no_document_that_fits_and_fills_rows(documents, reference, tmp_path):
    packing = Packing(sequence_length=256, packing="best-fit")
    options = RandomCorpus(documents=documents, output=str(tmp_path / "best"), packing=packing, shards=SHARDS)
    manifest = run_job(plan(options), Engine(workers=1))
    assert verify(str(tmp_path / "best")) == []
    assert manifest.totals["tokens"] == read_manifest(reference).totals["tokens"]
    rows = all_rows(tmp_path / "best", "farspan.corpus")
    parts = [len(row["document_ids"]) for row in rows]
    for row in rows:
        sizes = np.diff([*row["document_starts"], len(row["tokens"])])
        for size, offset, length in zip(sizes, row["document_offsets"], row["document_lengths"], strict=True):
            assert size == min(packing.room, length - offset)
            assert offset % packing.room == 0
    assert parts != sorted(parts)
    run_job(plan(replace(options, output=str(tmp_path / "merged"), fan_in=3)), Engine(workers=1))
    assert digests(tmp_path / "merged") == digests(tmp_path / "best")


def test_powers_of_two_count_the_ends_of_documents(documents, reference, tmp_path):
    packing = Packing(sequence_length=64, packing="powers-of-two", min_document_tokens=10)
    output = str(tmp_path / "powers")
    manifest = run_job(
        plan(RandomCorpus(documents=documents, output=output, packing=packing, shards=SHARDS)), Engine(workers=1)
    )
    assert verify(output) == []
    rows = all_rows(output, "farspan.corpus")
    assert {len(row["tokens"]) + 3 for row in rows} == {16, 32, 64}
    assert {len(row["document_ids"]) for row in rows} == {1}
    kept = sum(len(row["tokens"]) for row in all_rows(documents) if not row["held_out"] and len(row["tokens"]) >= 13)
    assert manifest.totals["tokens"] + manifest.totals["left_out_tokens"] == kept
    assert manifest.totals["padding"] == 0


def test_merged_spills_give_the_same_bytes(documents, reference, tmp_path):
    planned = job(documents, tmp_path / "merged", fan_in=3)
    assert {stage.name: len(stage.tasks) for stage in planned.stages} == {"spill": 4, "merge": 2, "pack": SHARDS}
    run_job(planned, Engine(workers=1))
    assert digests(tmp_path / "merged") == digests(reference)


@pytest.mark.slow
def test_worker_processes_say_nothing_of_their_own(documents, tmp_path):
    command = [sys.executable, "-c", "from pipelines.cli import main; main()"]
    command += arguments(documents, tmp_path / "corpus", 2)
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    progress = re.compile(r"\w+: (starting, )?\d+% \(.*|.*: (loads libraries|plans the job)|compiles loops.*")
    assert [line for line in done.stderr.splitlines() if not progress.fullmatch(line)] == []
    assert done.stdout.count("\n") == 1


def test_the_portable_runner_writes_the_same_bytes(documents, reference, tmp_path):
    with job_service(tmp_path) as (_, flags):
        build(documents, tmp_path / "portable", Engine(runner="PortableRunner", beam_flags=flags))
    assert digests(tmp_path / "portable") == digests(reference)


def arguments(documents, output, workers):
    flags = {"documents": documents, "output": output, "sequence-length": 256, "shards": SHARDS, "workers": workers}
    return ["corpus", "random", *(str(text) for name, value in flags.items() for text in (f"--{name}", value))]


def test_killed_half_way_and_resumed(run, documents, reference, tmp_path):
    """The job is killed when some shards are written; its command finishes it, redoing only the rest."""
    output = tmp_path / "killed"
    run_killed("tests.pipelines.corpus.test_random", "job", "pack", documents, str(output))
    assert not (output / "manifest.json").exists()
    first = output / "shards" / "part-00000-of-00005.arrow"
    (output / "shards" / "part-00004-of-00005.arrow.tmp-dead").write_bytes(b"half a shard")
    written = os.stat(first).st_mtime_ns
    status, _, err = run(*arguments(documents, output, 1))
    assert status == 0
    assert "resuming: 5 of 9 tasks are done" in err
    assert os.stat(first).st_mtime_ns == written
    assert digests(output) == digests(reference)
    assert verify(str(output)) == []
    assert sorted(os.listdir(output)) == [".origins.json", "README.md", "manifest.json", "shards", "tokenizer"]
    assert len(os.listdir(output / "shards")) == SHARDS


def test_a_finished_folder_is_left_alone_and_guarded(documents, reference):
    before = os.stat(os.path.join(reference, "manifest.json")).st_mtime_ns
    build(documents, reference)
    assert os.stat(os.path.join(reference, "manifest.json")).st_mtime_ns == before
    with pytest.raises(FarspanError, match=r"seed was 0, is 3.*another folder"):
        build(documents, reference, seed=3)


def test_ids_that_repeat_over_documents_are_refused(documents, tmp_path):
    twice = shutil.copytree(documents, str(tmp_path / "twice"))
    shards = os.path.join(twice, "shards")
    shutil.copy(os.path.join(shards, "part-00000-of-00004.arrow"), os.path.join(shards, "part-00001-of-00004.arrow"))
    manifest = read_manifest(twice)
    first, second, *others = manifest.shards
    said = replace(manifest, shards=(first, replace(first, name=second.name), *others))
    write_manifest(twice, said)
    with pytest.raises(FarspanError, match=r"'made:0:.*' occurs twice"):
        build(twice, tmp_path / "corpus")


def test_a_job_killed_before_its_first_task_resumes(documents, tmp_path):
    output = tmp_path / "corpus"
    with pytest.raises(KeyboardInterrupt):
        run_job(replace(job(documents, output), tokenizer=Mock(side_effect=KeyboardInterrupt)), Engine(workers=1))
    build(documents, output)
    assert verify(str(output)) == []
