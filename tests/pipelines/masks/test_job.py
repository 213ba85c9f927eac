"""``farspan mask``: the job, its options and the places of hidden text."""

import io
import json
import os
import shutil
import subprocess
import sys

import numpy as np
import pytest
from rich.console import Console

import farspan
from corpora.errors import FarspanError
from corpora.schemas.corpus import Corpus
from corpora.storage.manifest_file import read_manifest
from corpora.storage.sharded_rows import ShardedRows
from corpora.storage.shards import shard_name
from objectives.api.mask_set import MaskSet
from objectives.api.protocol import draw_key, load_objective, mask_key
from objectives.api.verify import verify_masks
from pipelines.cards.card import summary
from pipelines.engine.options import Engine
from pipelines.engine.run import run_job
from pipelines.inspect.distributions import places_of_masks
from pipelines.inspect.options import Choice, Show
from pipelines.inspect.show import show
from pipelines.masks.job import plan
from pipelines.masks.options import Masking
from tests.artefacts import digests, edit_sealed, make_corpus
from tests.third_party import install_farspan_lead
from tests.trainer.masked_folders import make_folders


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return make_corpus(str(tmp_path_factory.mktemp("corpus") / "corpus"), shards=3, documents=60)


def build(corpus, output, engine=Engine(workers=1), preset="bart_ls_mixed", **options):  # noqa: B008 (frozen)
    return run_job(plan(Masking(corpus=corpus, output=str(output), objective="span", preset=preset, **options)), engine)


@pytest.fixture(scope="module")
def masks(corpus, tmp_path_factory):
    folder = str(tmp_path_factory.mktemp("masks") / "masks")
    build(corpus, folder)
    return folder


def test_several_draws_are_stored_beside_each_other(corpus, masks, tmp_path):
    """The first is what one draw stores, and all are what epochs draw on the fly."""
    folder = str(tmp_path / "masks")
    build(corpus, folder, draws=3)
    manifest = read_manifest(folder)
    assert [shard.name for shard in manifest.shards] == [shard_name(number, 9) for number in range(9)]
    assert [shard.sha256 for shard in manifest.shards[:3]] == [shard.sha256 for shard in MaskSet(masks).manifest.shards]
    assert verify_masks(folder) == []
    stored, rows = MaskSet(folder), Corpus(corpus)
    order = np.arange(len(rows))[::-1]
    objective = load_objective("span", "bart_ls_mixed")
    for draw in range(3):
        drawn = objective.mask(rows.take(order), draw_key(mask_key(0, objective), draw))
        assert stored.masks(rows.take(order), order, draw).to_arrow().equals(drawn.to_arrow())
    shard = os.path.join(folder, "shards", shard_name(4, 9))
    shutil.copyfile(os.path.join(folder, "shards", shard_name(5, 9)), shard)
    assert any(shard_name(4, 9) in problem for problem in verify_masks(folder))


def test_draws_that_are_all_equal_are_told(corpus, tmp_path):
    """An objective without random choices has nothing to draw."""
    for objective, said in (("principal_sentences", True), ("span", False)):
        job = plan(Masking(corpus=corpus, output=str(tmp_path / objective), objective=objective, draws=2))
        assert ("all 2 draws are equal" in summary(run_job(job, Engine(workers=1)))) == said


@pytest.mark.parametrize("draws", [0, -1, 50_000])
def test_draws_that_cannot_be_are_refused(corpus, tmp_path, draws):
    with pytest.raises(FarspanError, match=rf"--draws {draws}: give 1 to 33,333, as the corpus has 3 shards"):
        plan(Masking(corpus=corpus, output=str(tmp_path / "masks"), objective="span", draws=draws))


def test_draws_of_a_manifest_that_cannot_be_are_told(masks, tmp_path):
    for draws in (0, "2", 7, True):
        damaged = shutil.copytree(masks, str(tmp_path / f"masks-{draws}"))
        with edit_sealed(os.path.join(damaged, "manifest.json")) as values:
            values["config"]["draws"] = draws
        with pytest.raises(FarspanError, match=r"manifest.json.*draws"):
            MaskSet(damaged)


def test_show_takes_the_number_of_a_draw(corpus, tmp_path):
    folder = str(tmp_path / "masks")
    build(corpus, folder, draws=2)
    seen = []
    for draw in range(2):
        for artefact, choice in (
            (folder, Choice(draw=draw)),
            (corpus, Choice(objective="span", preset="bart_ls_mixed", draw=draw)),
        ):
            console = Console(file=(out := io.StringIO()), width=10_000)
            show(Show(artefact=artefact, row=1, choice=choice), console)
            seen.append(out.getvalue().partition("tokens in the target")[2])
    assert seen[0] == seen[1] != seen[2] == seen[3]
    with pytest.raises(FarspanError, match=r"--draw 2: .* has draws 0 to 1"):
        show(Show(artefact=folder, row=1, choice=Choice(draw=2)))
    with pytest.raises(FarspanError, match="draw -1: give"):
        farspan.show(corpus, row=1, objective="span", draw=-1)


def test_seed_and_options_make_other_masks(corpus, masks, tmp_path):
    build(corpus, tmp_path / "seed", seed=1)
    build(corpus, tmp_path / "t5", preset="t5")
    assert len({tuple(digests(folder)) for folder in (masks, tmp_path / "seed", tmp_path / "t5")}) == 3
    assert verify_masks(str(tmp_path / "t5")) == []


def test_the_manifest_says_how_to_render(corpus, masks):
    manifest = read_manifest(masks)
    tokenizer = read_manifest(corpus).tokenizer
    assert manifest.special_tokens["<sentinel-0>"] >= tokenizer["vocab_size"]
    assert manifest.special_tokens["<eos>"] == tokenizer["owned_tokens"]["<eos>"]
    assert manifest.totals["sequences"] == len(Corpus(corpus))
    rows = MaskSet(masks).take(np.arange(len(Corpus(corpus))))
    assert manifest.totals["max_target_length"] == rows.target_lengths.max()
    assert MaskSet(masks).parent_folder == corpus


def test_masks_of_another_corpus_are_found_out(masks, tmp_path):
    other = make_corpus(str(tmp_path / "other"), shards=3, documents=60, seed=1)
    assert "but of the one that was at" in verify_masks(masks, other)[0]


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
        plan(
            Masking(corpus=corpus, output=str(tmp_path / "masks"), objective=objective, preset=preset, options=options)
        )
    assert not (tmp_path / "masks").exists()


@pytest.mark.slow
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


def test_masks_that_hide_nothing_are_told_so(tmp_path):
    said, corpus = [], make_corpus(str(tmp_path / "corpus"), room_per_document=2)
    for chance in (1e-9, 0.5):
        options = {"mlm_probability": chance, "treatments": [1.0, 0.0, 0.0]}
        masking = Masking(
            corpus=corpus, output=str(tmp_path / str(chance)), objective="cross_document", options=options
        )
        said.append("warning: NO row has a target token" in summary(run_job(plan(masking), Engine(workers=1))))
    assert said == [True, False]


def test_places_are_those_of_a_plain_loop(tmp_path):
    corpus, masks = make_folders(tmp_path, draws=2)
    texts = [row for batch in ShardedRows(corpus, "farspan.corpus").batches() for row in batch.to_pylist()]
    rows = [row for batch in ShardedRows(masks, "farspan.masks").batches() for row in batch.to_pylist()]
    in_row, in_document = [], []
    for row, text in zip(rows, texts * 2, strict=True):
        length = len(text["tokens"])
        edges = [*text["document_starts"], length]
        for start, size in zip(row["span_starts"], row["span_lengths"], strict=True):
            middle = start + size / 2
            (part,) = [k for k in range(len(edges) - 1) if edges[k] <= middle < edges[k + 1]]
            in_row.append(middle / length)
            in_document.append((middle - edges[part]) / (edges[part + 1] - edges[part]))
    found = places_of_masks(masks, ShardedRows(masks, "farspan.masks"))
    assert found is not None
    np.testing.assert_allclose(found[0], in_row, rtol=1e-6)
    np.testing.assert_allclose(found[1], in_document, rtol=1e-5)
    assert len(in_row) > 10


def test_without_the_corpus_there_are_none(tmp_path):
    _, masks = make_folders(tmp_path)
    (tmp_path / "corpus").rename(tmp_path / "gone")
    assert places_of_masks(masks, ShardedRows(masks, "farspan.masks")) is None


def test_a_presets_name_decides_its_objective(run, tmp_path):
    corpus = make_corpus(str(tmp_path / "corpus"))
    status, _, err = run("mask", "bart_ls_mixed", "--corpus", corpus, "--output", tmp_path / "masks")
    assert (status, err) == (0, "")
    assert json.loads((tmp_path / "masks/manifest.json").read_text())["config"]["objective"] == "span"
    for words, message in (
        (["bart_ls"], "'bart_ls' is a preset of model_based and principal_sentences and span; give one of these"),
        (["pegasux"], "no objective or preset is called 'pegasux' (did you mean 'pegasus_x'?)"),
        (["pegasus", "--preset", "t5"], "'pegasus' is itself a preset of principal_sentences"),
    ):
        status, _, err = run("mask", *words, "--corpus", corpus, "--output", tmp_path / "others")
        assert (status, err.startswith(f"farspan: {message}")) == (1, True)
