"""Models of every kind of source: read whole, by their configuration alone, and by the hash of their weights."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from io import StringIO

import pytest
import torch
from rich.console import Console
from transformers import T5Config, T5ForConditionalGeneration

from corpora.errors import FarspanError
from tests.trainer.conversion.models import tiny_model, tokenizer_files
from tests.trainer.toy import ToySource, toy_recipe
from trainer.checkpoint.run_files import keep_recipe
from trainer.conversion.convert import check_initial_model, model_config, model_sha256, read_model
from trainer.conversion.hugging_face import write_hugging_face
from trainer.conversion.model_folder import write_model_folder
from trainer.run.train import train


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    """A model folder, a folder of Hugging Face, and a run with checkpoints of steps 1 and 2."""
    folder = tmp_path_factory.mktemp("sources")
    model = replace(tiny_model(), tokenizer=tokenizer_files())
    write_model_folder(model, folder / "farspan")
    write_hugging_face(model, folder / "huggingface")
    recipe = toy_recipe(folder / "run", checkpoint_every=1, dry_run=False)
    train(recipe, source=ToySource(), until=2, console=Console(file=StringIO()))
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
    sizes = {"d_model": 16, "d_kv": 4, "d_ff": 24, "num_layers": 1, "num_heads": 4, "vocab_size": 37}
    theirs = T5ForConditionalGeneration(T5Config(**sizes, tie_word_embeddings=False))
    theirs.lm_head.weight = torch.nn.Parameter(torch.randn(37, 16))
    theirs.save_pretrained(tmp_path)
    values = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**values, "tie_word_embeddings": True}))
    whole, written = read_model(tmp_path).config, model_config(tmp_path)
    assert (whole.output.tied, written.output.tied) == (False, True)
    assert replace(written, output=whole.output) == whole
    check_initial_model(tmp_path, whole)
    with pytest.raises(FarspanError, match=r"model.width: the model has 16, the recipe 32"):
        check_initial_model(tmp_path, replace(whole, width=32))


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
    keep_recipe({}, {"tokenizer.json": tokenizer_files()["tokenizer.json"]}, run)
    with pytest.raises(FarspanError, match=r"tokenizer/ has fingerprint .*, the model toy tokenize; copy the run"):
        read_model(run)
