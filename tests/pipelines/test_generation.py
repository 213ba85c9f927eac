"""Predictions of a run for pairs: the texts of each pair alone, however the job is divided, stopped and resumed."""

import json
import os
import re
import shutil
import signal
import tomllib
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch

import farspan
from corpora.errors import FarspanError
from corpora.printing import printable
from corpora.schemas.pairs import open_pairs
from corpora.schemas.predictions import open_predictions
from corpora.settings import parse
from corpora.storage.manifest import Manifest
from corpora.storage.manifest_file import read_manifest
from corpora.verify.artefact import verify
from pipelines import cli
from pipelines.generate import GenerateShard, generate
from pipelines.options import Generating
from tests.artefacts import digests, edit_sealed, make_documents, make_pairs
from tests.fine_tuned import OPTIONS, make_artefacts, paired_recipe, train_quietly
from tests.pipelines.integration.test_every_job import flip
from tests.trainer.distributed_ranks import on_ranks
from trainer.checkpoint.selection import CheckpointConfig
from trainer.conversion.convert import convert
from trainer.model.patterns.full import Full
from trainer.options import Conversion
from trainer.parallel.distributed import World
from trainer.prediction.setup import open_model
from trainer.run_config import EvaluationConfig


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A run, and the pairs that it was trained on."""
    folder = tmp_path_factory.mktemp("generate")
    pairs = make_artefacts(folder)
    recipe = paired_recipe(folder / "run", pairs, checkpoint_every=3)
    checkpoint = replace(recipe.checkpoint, best="held_out_loss", keep=2)
    train_quietly(replace(recipe, evaluation=EvaluationConfig(every=3), checkpoint=checkpoint))
    return str(folder / "run"), pairs


def options_of(made, output, **options):
    run, pairs = made
    given = {"model": run, "pairs": pairs, "output": str(output), "device": "cpu", "shard_rows": 3, **options}
    return Generating(**given)


def run_of(made, output, **options):
    generate(options_of(made, output, **options), World.alone())
    return str(output)


def whole(folder):
    """The bytes of everything but the manifest, whose path of the parent depends on the place."""
    return digests(folder), Path(folder, "predictions.json").read_bytes()


def test_texts_are_those_of_plain_greedy_decoding(made, tmp_path):
    """Of each pair alone, without a cache."""
    folder = run_of(made, tmp_path / "greedy", generation={"beams": 1}, split="train")
    found, pairs = open_predictions(folder), open_pairs(made[1])
    assert found.pair_ids == pairs.table(pairs.rows_of("train")).column("pair_id").to_pylist()
    assert verify(folder) == []
    opened = open_model(Path(made[0]))
    model, special = opened.build(torch.device("cpu")), opened.model.vocabulary.special
    predictor = predictor_of(made)
    for row, text in zip(pairs.rows_of("train"), found.texts, strict=True):
        examples = predictor.task.render(pairs.take([row]), np.array([-1]), special).examples
        source = torch.from_numpy(examples.source_ids.astype(np.int64))
        assert text == predictor.text(greedy(model, source, special))
    assert len(set(found.texts)) > 3
    texts = dict(zip(found.pair_ids, found.texts, strict=True))
    assert json.loads(Path(folder, "predictions.json").read_text()) == texts


def greedy(model, source, special):
    """At most 15 tokens before the end, each after a decoder pass over all tokens before it."""
    memory, written = model.encode(source), [special["<eos>"]]
    while len(written) <= 15:
        logits = model.logits(model.decode(torch.tensor([written]), memory))[0, -1]
        logits[special["<pad>"]] = -torch.inf
        if (best := int(logits.argmax())) == special["<eos>"]:
            break
        written.append(best)
    return np.array(written[1:], np.int32)


def predictor_of(made):
    from pipelines.generate import plan

    job = plan(options_of(made, "/nowhere"), open_model(Path(made[0])), lambda: None)
    (work,) = [stage.work for stage in job.stages if isinstance(stage.work, GenerateShard)]
    return work.predictor


@pytest.mark.parametrize("options", [{}, {"query": "decoder"}], ids=["query in the source", "shared sources"])
def test_batches_change_no_byte(made, tmp_path, options):
    given = {"split": "train", "options": options}
    one, other = (run_of(made, tmp_path / str(size), batch_positions=size, **given) for size in (1, 1 << 16))
    assert whole(one) == whole(other)


def test_the_options_are_those_of_the_recipe_and_the_flags(made, tmp_path):
    folder = run_of(made, tmp_path / "set", generation={"min_tokens": 3, "beams": 2})
    config = read_manifest(folder).config
    assert config["generation"]["beams"] == 2
    assert config["generation"]["max_tokens"] == 15  # as many as targets in training may have, without their end
    assert config["task"]["options"]["source_length"] == 48
    assert (config["model"]["run"], config["model"]["checkpoint"]) == ("run", "step-00000006")
    lengths = [len(row) for batch in open_predictions(folder).batches() for row in batch.column("tokens").to_pylist()]
    assert 3 <= min(lengths) <= max(lengths) <= 15


def test_a_folder_needs_a_task_and_gives_the_same(made, tmp_path):
    run, pairs = made
    convert(Path(run), tmp_path / "model", Conversion(checkpoint="3"))
    with pytest.raises(FarspanError, match="names no task; name a task that renders the pairs"):
        run_of((str(tmp_path / "model"), pairs), tmp_path / "refused")
    named = {"task": "text_to_text", "options": {"source_length": 48, "target_length": 12, "global_attention": "bos"}}
    folder = run_of((str(tmp_path / "model"), pairs), tmp_path / "folder", **named)
    assert whole(folder) == whole(run_of(made, tmp_path / "run", checkpoint="3"))
    with pytest.raises(FarspanError, match="is not a run, so it has no checkpoint 'best'"):
        run_of((str(tmp_path / "model"), pairs), tmp_path / "refused", **named, checkpoint="best")


@pytest.mark.slow
def test_a_folder_of_hugging_face_gives_the_texts_of_its_run(made, tmp_path):
    recipe = paired_recipe(tmp_path / "run", made[1])
    encoder = replace(recipe.model.encoder, attention=Full(), pooling=None)
    decoder = replace(recipe.model.decoder, positions=encoder.positions)
    recipe = replace(recipe, model=replace(recipe.model, encoder=encoder, decoder=decoder))
    train_quietly(recipe, until=1)
    convert(tmp_path / "run", tmp_path / "bart", Conversion(to="huggingface"))
    length = {"generation": {"max_tokens": 15}}
    texts = [
        open_predictions(run_of((str(tmp_path / model), made[1]), tmp_path / f"of-{model}", **length, **options)).texts
        for model, options in (("run", {}), ("bart", {"task": "text_to_text", "options": OPTIONS}))
    ]
    assert texts[0] == texts[1]
    assert read_manifest(str(tmp_path / "of-bart")).config["model"]["folder"] == "bart"


def test_too_little_memory_names_the_cure(made, tmp_path, monkeypatch):
    full = Mock(side_effect=torch.OutOfMemoryError("CUDA out of memory"))
    monkeypatch.setattr("trainer.prediction.predictor.generate", full)
    with pytest.raises(FarspanError, match=r"out of memory with --batch-positions 65536; finished shards are kept"):
        run_of(made, tmp_path / "small")


def killed(options, shard):
    torch.set_num_threads(1)
    work = GenerateShard.__call__

    def deadly(self, task, report):
        receipt = work(self, task, report)
        if task.name.endswith(shard):
            os.kill(os.getpid(), signal.SIGKILL)
        return receipt

    GenerateShard.__call__ = deadly
    generate(options, World.alone())


def test_a_killed_job_is_resumed_with_the_same_bytes(made, tmp_path, capsys):
    straight = run_of(made, tmp_path / "straight")
    options = options_of(made, tmp_path / "killed")
    process = get_context("fork").Process(target=killed, args=(options, "00001"))
    process.start()
    process.join(120)
    assert process.exitcode == -signal.SIGKILL
    with pytest.raises(FarspanError, match=r"another configuration: config.generation.beams was 4, is 2"):
        generate(replace(options, generation={"beams": 2}), World.alone())
    capsys.readouterr()
    generate(options, World.alone())
    assert "resuming: 1 of 4 tasks are done" in capsys.readouterr().err
    assert whole(options.output) == whole(straight)
    assert not os.path.exists(tmp_path / "killed/_work")
    generate(options, World.alone())  # nothing is left to do


def on_rank(world, options):
    torch.set_num_threads(1)
    generate(options, world)


def test_any_number_of_ranks_writes_the_same(made, tmp_path):
    alone = run_of(made, tmp_path / "alone")
    options = options_of(made, tmp_path / "ranks")
    on_ranks(2, on_rank, options)
    assert whole(options.output) == whole(alone)


def test_the_command(made, tmp_path, capsys):
    run, pairs = made
    output = str(tmp_path / "predictions")
    flags = ["--pairs", pairs, "--output", output, "--checkpoint", "best", "--generation", "beams=2"]
    cli.main(["generate", run, *flags, "--device", "cpu"])
    assert "8 predictions" in capsys.readouterr().out
    best = json.loads(Path(run, "checkpoints/best.json").read_text())["step"]
    assert read_manifest(output).config["model"]["checkpoint"] == f"step-{best:08d}"
    options: dict[str, Any] = {"checkpoint": "best", "generation": {"beams": 2}, "device": "cpu"}
    assert farspan.generate(run, pairs=pairs, output=output, **options) == read_manifest(output)
    found = farspan.open_predictions(output)
    assert found.open_pairs().folder == pairs
    cli.main(["show", output, "--row", "2"])
    cli.main(["stats", output])
    cli.main(["verify", output])
    said = capsys.readouterr().out
    assert f"prediction 2 of {output}" in said
    assert printable(found.texts[2]) in said
    assert f", pair {found.pair_ids[2]}\n" in said
    assert "prediction length" in said
    assert f"{output}: sound" in said


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"split": "dev"}, r"no pair is in split 'dev'; its splits: train, validation"),
        ({"generation": {"beems": 2}}, r"--generation has no key 'beems' \(did you mean 'beams'\?\)"),
        ({"options": {"generation.beams": 2}}, r"--set generation.beams: .*give --generation beams="),
        ({"generation": {"first_tokens": [9999]}}, r"first_tokens has 9999, which is not among the model's"),
        ({"generation": {"max_tokens": 40}}, r"the decoder of .* has 32 positions.*at most 31"),
        ({"options": {"source_length": 96}}, r"source_length is 96, but the encoder .* has 64 positions"),
        ({"task": "text_to_tex"}, r"text_to_tex'.*did you mean 'text_to_text'"),
        ({"checkpoint": "4"}, r"no checkpoint '4'; give newest, best or one of the steps 3, 6"),
        ({"model": "/nowhere"}, r"/nowhere: does not exist; give a model folder"),
    ],
)  # fmt: skip
def test_what_does_not_go_together_is_refused_before_work(made, tmp_path, options, message):
    with pytest.raises(FarspanError, match=message):
        run_of(made, tmp_path / "refused", **options)
    assert not (tmp_path / "refused").exists()


def test_a_special_token_that_the_model_lacks_is_refused_where_it_is_inserted(made, tmp_path):
    options = {"options": {"separator": "<doc-s>"}}
    assert whole(run_of(made, tmp_path / "single", **options)) == whole(run_of(made, tmp_path / "plain"))
    documents = make_documents(str(tmp_path / "documents"), shards=1)
    several = make_pairs(str(tmp_path / "pairs"), documents, documents_per_pair=2)
    with pytest.raises(FarspanError, match=r"pair 'pair-2': task text_to_text inserts <doc-s>, which the model doe"):
        run_of((made[0], several), tmp_path / "several", **options)


def test_pairs_of_another_tokenizer_or_about_other_documents_are_refused(made, tmp_path):
    others = make_documents(str(tmp_path / "others"), shards=1, seed=1)
    with pytest.raises(FarspanError, match="its pairs are about other documents than those in"):
        run_of(made, tmp_path / "refused", documents=others)
    with pytest.raises(FarspanError, match=r"is 'farspan.documents' where 'farspan.pairs' is needed"):
        run_of((made[0], others), tmp_path / "refused")
    strange = make_pairs(str(tmp_path / "strange"), others)
    with edit_sealed(Path(strange, "manifest.json")) as manifest:
        manifest["tokenizer"]["fingerprint"] = "0" * len(manifest["tokenizer"]["fingerprint"])
    with pytest.raises(FarspanError, match="was made with the tokenizer 000000000000, the model"):
        run_of((made[0], strange), tmp_path / "refused")


PAGE = (Path(__file__).parents[2] / "docs/finetuning.md").read_text("utf-8")


def test_the_commands_of_the_page_run(made, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    os.symlink(made[0], "run")
    os.symlink(made[1], "pairs")
    os.symlink(Path(made[1]).parent / "documents", "documents")
    section = PAGE.partition("## Generation and validation")[2]
    commands = re.findall(r"^(?:farspan|torchrun .*-m pipelines) (generate .*)$", section, re.MULTILINE)
    assert len(commands) == 3
    for command in commands:
        cli.main(command.replace("--split test", "--split train").split())  # there is no test split
    assert [len(open_predictions(name)) for name in ("predictions", "test-predictions")] == [8, 16]


def test_the_recipe_of_the_page_is_one():
    blocks = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    (sections,) = (tomllib.loads(block) for block in blocks if "[evaluation.generation]" in block)
    evaluation = parse(EvaluationConfig, sections["evaluation"], "page", "evaluation")
    assert (evaluation.patience, evaluation.generation.beams) == (10, 4)
    assert parse(CheckpointConfig, sections["checkpoint"], "page", "checkpoint").best == "f1"


@pytest.mark.parametrize("damaged", ["pairs", "documents"])
def test_a_flipped_bit_in_pairs_or_documents_stops_the_job(made, tmp_path, damaged):
    run, pairs = made
    documents = open_pairs(pairs).documents.folder
    places = {"pairs": shutil.copytree(pairs, tmp_path / "pairs"), "documents": tmp_path / "documents"}
    shutil.copytree(documents, places["documents"])
    path = sorted((places[damaged] / "shards").iterdir())[0]
    flip(str(path))
    given = (run, str(places["pairs"]))
    with pytest.raises(FarspanError, match=rf"{path}: not a readable shard \(sha256 \w+ where the manifest says \w+\)"):
        run_of(given, tmp_path / "out", documents=str(places["documents"]))
    assert not (tmp_path / "out" / "manifest.json").exists()


TOKENIZER = {"fingerprint": "", "vocab_size": 1, "owned_tokens": {}}
LINE = ["run", "--pairs", "p", "--generation", "beams=4"]


@pytest.mark.parametrize("rank", [None, "0", "1"])
def test_the_first_process_sums_up_the_predictions(run, monkeypatch, tmp_path, rank):
    given = []

    def generate(options):
        given.append(options)
        totals = {"predictions": 3, "tokens": 9}
        return Manifest("farspan.predictions", {"split": "train"}, 0, 64, TOKENIZER, totals=totals)

    monkeypatch.setattr("pipelines.generate.generate", generate)
    if rank:
        monkeypatch.setenv("RANK", rank)
    status, out, err = run("generate", *LINE, "--output", tmp_path / "o")
    assert (status, err) == (0, "")
    assert out.startswith(f"{tmp_path / 'o'}: ") == (rank != "1")
    assert [(options.model, options.generation) for options in given] == [("run", {"beams": 4})]


@pytest.mark.parametrize("rank", ["0", "1"])
def test_what_all_processes_refuse_is_one_line(capsys, monkeypatch, tmp_path, rank):
    """Wrong options and a model that is not there."""
    monkeypatch.setattr(cli, "leave", lambda status: (_ for _ in ()).throw(SystemExit(status)))
    for name in ("RANK", "LOCAL_RANK"):
        monkeypatch.setenv(name, rank)
    for words in (["--shard-rows", "0"], []):
        with pytest.raises(SystemExit) as ended:
            cli.main(["generate", str(tmp_path / "none"), *LINE[1:], "--output", str(tmp_path / "o"), *words])
        assert ended.value.code == 1
        assert len(capsys.readouterr().err.splitlines()) == (rank == "0")
