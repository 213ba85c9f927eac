"""Tests of conversion, and of its sources."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import (
    AutoModelForSeq2SeqLM,
    BartConfig,
    BartForConditionalGeneration,
    T5Config,
    T5ForConditionalGeneration,
)

from corpora.errors import FarspanError
from objectives.api.mask_set import MaskSet
from tests.artefacts import make_corpus, small_tokenizer
from tests.trainer.conversion.models import disturbed, tiny_model, tokenizer_files
from tests.trainer.toy import ToySource, toy_recipe, train_quietly
from trainer.checkpoint.run_files import RECIPE, keep_recipe, read_sealed
from trainer.conversion.convert import model_config, model_sha256, read_model, settle_model
from trainer.conversion.hugging_face import write_hugging_face
from trainer.conversion.model_folder import read_model_folder, write_model_folder
from trainer.recipe import load_recipe
from trainer.run_config import RunConfig

SIZES: dict[str, Any] = {
    "d_model": 128, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
    "decoder_attention_heads": 4, "encoder_ffn_dim": 512, "decoder_ffn_dim": 512, "max_position_embeddings": 64,
}  # fmt: skip


@pytest.fixture(scope="module")
def bart(tmp_path_factory):
    """A Hugging Face folder whose sizes are those of the recipe ``tiny_block``, and whose tokenizer is the corpus's."""
    folder = tmp_path_factory.mktemp("models") / "bart"
    rows = small_tokenizer().vocab_size
    disturbed(BartForConditionalGeneration(BartConfig(vocab_size=rows, **SIZES)), 0.02).save_pretrained(folder)
    small_tokenizer().save(str(folder))
    return folder


@pytest.fixture
def masks(run, tmp_path):
    corpus = make_corpus(str(tmp_path / "corpus"))
    assert run("mask", "span", "--preset", "t5", "--corpus", corpus, "--output", tmp_path / "masks")[0] == 0
    return tmp_path / "masks"


def test_a_short_model_becomes_a_recipes_that_knows_a_mask_sets_tokens(run, bart, masks, tmp_path):
    status, out, err = run("convert", bart, tmp_path / "long", "--recipe", "tiny_block", "--masks", masks)
    assert (status, err) == (0, "")
    model, special = read_model_folder(tmp_path / "long"), MaskSet(str(masks)).special_tokens
    parameters = sum(x.numel() for x in model.state.values())
    assert out == f"{tmp_path / 'long'}: {parameters:,} parameters, {special.vocab_size:,} rows of tokens\n"
    assert model.config == load_recipe("tiny_block").model
    assert model.vocabulary.special == special
    assert model.vocabulary.tokenizer_fingerprint == small_tokenizer().fingerprint
    assert model.parent["kind"] == "bart"
    assert "tokenizer.json" in model.tokenizer


def test_there_and_back_is_the_same_model(run, bart, tmp_path):
    assert run("convert", bart, tmp_path / "ours")[0] == 0
    assert run("convert", tmp_path / "ours", tmp_path / "theirs", "--to", "huggingface")[0] == 0
    first, second = (AutoModelForSeq2SeqLM.from_pretrained(folder).eval() for folder in (bart, tmp_path / "theirs"))
    ids = torch.arange(3, 20)[None]
    with torch.no_grad():
        assert torch.equal(*(model(input_ids=ids, decoder_input_ids=ids).logits for model in (first, second)))
    assert "auto_map" not in json.loads((tmp_path / "theirs" / "config.json").read_text())


def test_a_tokenizer_can_be_given_and_must_be_the_models(run, bart, masks, tmp_path):
    stripped = tmp_path / "stripped"
    stripped.mkdir()
    for name in ("config.json", "model.safetensors"):
        (stripped / name).write_bytes((bart / name).read_bytes())
    small_tokenizer().save(str(tmp_path / "own"))
    assert run("convert", stripped, tmp_path / "ours", "--tokenizer", tmp_path / "own")[0] == 0
    assert read_model_folder(tmp_path / "ours").vocabulary.tokenizer_fingerprint == small_tokenizer().fingerprint
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "tokenizer.json").write_bytes(tokenizer_files()["tokenizer.json"])
    for source in (bart, tmp_path / "ours"):
        status, _, err = run("convert", source, tmp_path / "wrong", "--tokenizer", tmp_path / "other")
        assert (status, "give the tokenizer that its data was made with" in err) == (1, True)
    wrong = tmp_path / "known"
    assert run("convert", stripped, wrong, "--tokenizer", tmp_path / "other")[0] == 0  # nothing known says no
    status, _, err = run("convert", wrong, tmp_path / "out", "--masks", masks)
    assert (status, "make the corpus with the model's tokenizer" in err) == (1, True)


def test_what_a_decoder_begins_with_outlives_a_change_of_rows(run, bart, masks, tmp_path):
    folder = shutil.copytree(bart, tmp_path / "pegasus-like")
    values = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**values, "decoder_start_token_id": values["pad_token_id"]}))
    assert run("convert", folder, tmp_path / "ours", "--masks", masks)[0] == 0
    assert read_model_folder(tmp_path / "ours").vocabulary.decoder_start == "<pad>"


def test_fields_can_be_set_without_a_recipe(run, bart, tmp_path):
    rows, more = small_tokenizer().vocab_size, small_tokenizer().vocab_size + 7
    arguments = ["--set", "model.encoder.positions.count=96", "--vocab-size", more]
    assert run("convert", bart, tmp_path / "longer", *arguments)[0] == 0
    model = read_model_folder(tmp_path / "longer")
    assert model.state["encoder.embedded.positions.weight"].shape == (96, 128)
    assert model.state["tokens.weight"].shape == (more, 128)
    assert len(model.state["tokens.weight"].unique(dim=0)) == more
    status, _, err = run("convert", bart, tmp_path / "fewer", "--vocab-size", rows - 1)
    assert status == 1
    assert f"--vocab-size is {rows - 1}; the model's tokens need at least {rows} rows" in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--recipe", "tiny_block", "--set", "model.width=64"], "model.width: the model has 128, the target 64"),
        (["--set", "run.steps=3"], "--set run...: without --recipe"),
        (["--set", "model.widht=3"], "did you mean 'width'"),
        (["--masks", "masks", "--vocab-size", "900"], "give one of them"),
        (["--recipe", "no_such"], "no recipe 'no_such'"),
        (["--set", "model.encoder.attention.size=8", "--set", "model.encoder.attention.global_tokens=2", "--set",
          "model.encoder.attention.pattern=block_global", "--to", "huggingface"], "attention pattern 'block_global'"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_one_line_and_leaves_nothing(run, bart, tmp_path, arguments, message):
    status, _, err = run("convert", bart, tmp_path / "out", *arguments)
    assert (status, err[:9], message in err) == (1, "farspan: ", True)
    assert not list(tmp_path.iterdir())


def test_nothing_is_overwritten_and_no_model_is_no_source(run, bart, tmp_path):
    (tmp_path / "there").mkdir()
    assert "exists" in run("convert", bart, tmp_path / "there")[2]
    assert "holds no model" in run("convert", tmp_path / "there", tmp_path / "out")[2]


def run_from(initial_model: Path) -> RunConfig:
    return RunConfig(directory="unused", steps=1, batch_size=1, initial_model=str(initial_model))


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    """A model folder, a folder of Hugging Face, and a run with checkpoints of steps 1 and 2."""
    folder = tmp_path_factory.mktemp("sources")
    model = replace(tiny_model(), tokenizer=tokenizer_files())
    write_model_folder(model, folder / "farspan")
    write_hugging_face(model, folder / "huggingface")
    train_quietly(toy_recipe(folder / "run", checkpoint_every=1, dry_run=False), source=ToySource(), until=2)
    return folder


KINDS = ["farspan", "huggingface", "run", "run/checkpoints/step-00000001"]


@pytest.mark.parametrize("kind", KINDS)
def test_the_configuration_alone_is_that_of_the_model(sources, kind, monkeypatch):
    read = read_model(sources / kind).config
    monkeypatch.setattr(torch, "load", None)
    monkeypatch.setattr("safetensors.torch.load_file", None)
    assert model_config(sources / kind) == read


def test_an_output_layer_of_its_own_is_seen_in_the_weights_alone(tmp_path):
    """A run may begin with such a model, although its configuration says that the output layer is the token table."""
    sizes: dict[str, Any] = {"d_model": 16, "d_kv": 4, "d_ff": 24, "num_layers": 1, "num_heads": 4}
    theirs = T5ForConditionalGeneration(T5Config(**{**sizes, "vocab_size": 37, "tie_word_embeddings": False}))
    theirs.lm_head.weight = torch.nn.Parameter(torch.randn(37, 16))
    theirs.save_pretrained(tmp_path)
    values = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**values, "tie_word_embeddings": True}))
    whole, written = read_model(tmp_path).config, model_config(tmp_path)
    assert (whole.output.tied, written.output.tied) == (False, True)
    assert replace(written, output=whole.output) == whole
    assert settle_model(whole, run_from(tmp_path)) == whole
    with pytest.raises(FarspanError, match=r"model.width: the model has 16, the recipe 32"):
        settle_model(replace(whole, width=32), run_from(tmp_path))
    with pytest.raises(FarspanError, match=r"^run\.initial_model .*none: does not exist"):
        settle_model(whole, run_from(tmp_path / "none"))


@pytest.mark.parametrize("kind", KINDS)
def test_the_hash_follows_the_weights(sources, kind):
    known = model_sha256(sources / kind)
    assert known == model_sha256(sources / kind)
    assert len({known, *(model_sha256(sources / other) for other in KINDS)}) == len(KINDS)


def test_a_checkpoint_of_a_run_is_chosen_by_its_step(sources):
    first, newest = (model_sha256(sources / "run", which) for which in ("1", "newest"))
    assert first == model_sha256(sources / "run/checkpoints/step-00000001") != newest == model_sha256(sources / "run")
    assert read_model(sources / "run", "1").parent["step"] == 1
    assert read_model(sources / "run").parent["step"] == 2
    with pytest.raises(FarspanError, match=r"no checkpoint '7'"):
        model_config(sources / "run", "7")


@pytest.mark.parametrize("read", [read_model, model_config])
def test_what_holds_no_model_is_refused(sources, tmp_path, read):
    with pytest.raises(FarspanError, match="holds no model; give a model folder of farspan, a folder of Hugging Face"):
        read(tmp_path)
    for kind in ("farspan", "huggingface"):
        with pytest.raises(FarspanError, match="is not a run, so it has no checkpoint 'best'; leave --checkpoint out"):
            read(sources / kind, "best")


def test_a_run_is_read_with_the_tokenizer_that_it_was_trained_with_alone(sources, tmp_path):
    run = shutil.copytree(sources / "run", tmp_path / "run")
    model = read_model(run)
    assert model.tokenizer == {}  # the toy source names a tokenizer that has no files
    assert model.parent["source_length"] == 24
    assert model.vocabulary.decoder_start == "<eos>"
    (run / "tokenizer").mkdir()
    (run / "tokenizer/tokenizer.json").write_bytes(tokenizer_files()["tokenizer.json"])
    with pytest.raises(FarspanError, match=r"tokenizer/tokenizer.json is no file of the run"):
        read_model(run)
    keep_recipe(read_sealed(run / RECIPE)["recipe"], {"tokenizer.json": tokenizer_files()["tokenizer.json"]}, run)
    with pytest.raises(FarspanError, match=r"tokenizer/ has fingerprint .*, the model toy tokenize; copy the run"):
        read_model(run)
