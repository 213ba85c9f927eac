"""Mask sets from the command line and in process: the same masks, aligned with their corpus, for anyone's objective."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys

import numpy as np
import pytest

from corpora.corpus import Corpus
from corpora.errors import FarspanError
from corpora.files import LocalFiles
from corpora.manifest import read_manifest
from objectives.base import load_objective, mask_key
from objectives.mask_set import MaskSet
from objectives.verification import verify_masks
from pipelines.engine import Engine
from pipelines.job import run_job
from pipelines.mask import Masking, plan
from tests.artefacts import digests, make_corpus
from tests.third_party import install_farspan_lead


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return make_corpus(str(tmp_path_factory.mktemp("corpus") / "corpus"), shards=3, documents=60)


def build(corpus, output, engine=Engine(workers=1), preset="bart_ls_mixed", **options):  # noqa: B008 (frozen)
    return run_job(plan(Masking(corpus, str(output), "span", preset, **options)), engine)


@pytest.fixture(scope="module")
def masks(corpus, tmp_path_factory):
    folder = str(tmp_path_factory.mktemp("masks") / "masks")
    build(corpus, folder)
    return folder


def test_masks_are_sound_and_equal_those_drawn_in_process(corpus, masks):
    assert verify_masks(masks) == []
    stored, rows = MaskSet(masks), Corpus(corpus)
    order = np.random.default_rng(0).permutation(len(rows))
    objective = load_objective("span", "bart_ls_mixed")
    drawn = objective.mask(rows.take(order), mask_key(0, objective))
    found = stored.take(order)
    for column in ("span_starts", "span_lengths", "span_flags"):
        for row in range(len(order)):
            assert np.array_equal(getattr(found, column)[row], getattr(drawn, column)[row])
    assert np.array_equal(found.source_lengths, drawn.source_lengths)
    assert stored.objective.options == objective.options


def test_two_workers_write_the_same_bytes(corpus, masks, tmp_path):
    build(corpus, tmp_path / "masks", Engine(workers=2))
    assert digests(tmp_path / "masks") == digests(masks)


def test_seed_and_options_make_other_masks(corpus, masks, tmp_path):
    build(corpus, tmp_path / "seed", seed=1)
    build(corpus, tmp_path / "t5", preset="t5")
    assert len({tuple(digests(folder)) for folder in (masks, tmp_path / "seed", tmp_path / "t5")}) == 3
    assert verify_masks(str(tmp_path / "t5")) == []


def test_the_manifest_says_how_to_render(corpus, masks):
    manifest = read_manifest(LocalFiles(), masks)
    tokenizer = read_manifest(LocalFiles(), corpus).tokenizer
    assert manifest.special_tokens["<sentinel-0>"] >= tokenizer["vocab_size"]
    assert manifest.special_tokens["<eos>"] == tokenizer["owned_tokens"]["<eos>"]
    assert manifest.totals["sequences"] == len(Corpus(corpus))
    rows = MaskSet(masks).take(np.arange(len(Corpus(corpus))))
    assert manifest.totals["max_target_length"] == rows.target_lengths.max()
    assert os.path.normpath(os.path.join(masks, manifest.parent["path"])) == corpus


def test_masks_of_another_corpus_are_found_out(masks, tmp_path):
    other = make_corpus(str(tmp_path / "other"), shards=3, documents=60, seed=1)
    assert "but of the one that lay at" in verify_masks(masks, other)[0]


def test_damage_is_found(masks, corpus, tmp_path):
    damaged = shutil.copytree(masks, str(tmp_path / "masks"))
    path = os.path.join(damaged, "shards", "part-00001-of-00003.arrow")
    data = bytearray(open(path, "rb").read())
    data[len(data) // 2] ^= 4
    open(path, "wb").write(data)
    assert any("part-00001" in problem and "damaged" in problem for problem in verify_masks(damaged, corpus))


@pytest.mark.parametrize(
    ("objective", "preset", "options", "message"),
    [
        ("spam", None, {}, "did you mean 'span'"),
        ("span", "bart_sl", {}, "did you mean 'bart_ls'"),
        ("span", None, {"densty": 0.1}, "did you mean 'density'"),
        ("span", None, {"density": 2.0}, "density"),
        ("span", "bart_ls", {"sentinels": 1}, "sentinel"),
    ],
)
def test_what_cannot_work_is_refused_before_work_starts(corpus, tmp_path, objective, preset, options, message):
    with pytest.raises(FarspanError, match=message):
        plan(Masking(corpus, str(tmp_path / "masks"), objective, preset, options))
    assert not (tmp_path / "masks").exists()


def test_someone_elses_objective_runs_through_the_command_line(corpus, tmp_path):
    """Two worker processes find the objective by its entry point, and verify renders it with its own code."""
    output = str(tmp_path / "masks")
    installed = install_farspan_lead(tmp_path / "site")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([*installed, os.environ.get("PYTHONPATH", "")])}

    def farspan(*arguments):
        command = [sys.executable, "-c", "from pipelines.cli import main; main()", *arguments]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

    made = farspan("mask", "lead_in", "--corpus", corpus, "--set", "lead=3", "--output", output, "--workers", "2")
    assert made.returncode == 0, made.stderr
    checked = farspan("verify", output)
    assert checked.stdout.strip().endswith("sound"), checked.stdout + checked.stderr
    shown = farspan("show", output)
    assert "<gap>" in shown.stdout, shown.stderr
    assert json.load(open(os.path.join(output, "manifest.json")))["config"]["options"] == {
        "lead": 3,
        "whole_words": False,
    }
    refused = farspan("mask", "lead_in", "--corpus", corpus, "--set", "lead=0", "--output", str(tmp_path / "none"))
    assert refused.returncode == 1
    assert "lead_in: option lead is 0" in refused.stderr
