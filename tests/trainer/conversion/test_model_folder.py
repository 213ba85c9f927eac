import json
from dataclasses import replace
from hashlib import sha256

import pytest
import torch
from safetensors.torch import load_file, save_file

from corpora.errors import FarspanError
from tests.trainer.conversion.models import tiny_config, tiny_model, tokenizer_files
from trainer.conversion.model_folder import is_model_folder, read_model_folder, weights_sha256, write_model_folder


@pytest.fixture
def folder(tmp_path):
    write_model_folder(replace(tiny_model(), tokenizer=tokenizer_files()), tmp_path / "model")
    return tmp_path / "model"


def test_what_is_written_is_read_back(folder):
    model, again = replace(tiny_model(), tokenizer=tokenizer_files()), read_model_folder(folder)
    assert is_model_folder(folder)
    assert (again.config, again.vocabulary, again.tokenizer, again.parent) == (
        model.config, model.vocabulary, model.tokenizer, model.parent
    )  # fmt: skip
    assert again.state.keys() == model.state.keys()
    assert all(torch.equal(again.state[name], model.state[name]) for name in model.state)
    assert len(weights_sha256(folder)) == 64


def test_an_encoder_alone_is_a_model_too(tmp_path):
    model = tiny_model(tiny_config(decoder=False))
    write_model_folder(model, tmp_path / "model")
    assert read_model_folder(tmp_path / "model").config == model.config


def test_nothing_is_overwritten(folder):
    with pytest.raises(FarspanError, match="exists"):
        write_model_folder(tiny_model(), folder)


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer/tokenizer.json"])
def test_a_changed_file_is_damage(folder, name):
    data = bytearray((folder / name).read_bytes())
    data[-3] ^= 1
    (folder / name).write_bytes(data)
    with pytest.raises(FarspanError, match=r"is damaged \(.* has another sha256"):
        read_model_folder(folder)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format_version": 2}, "version 2"),
        ({"format": "farspan.masks"}, "farspan.masks"),
        ({"more": 1}, "has the keys"),
        ({"config": {"width": 16}}, "config"),
        ({"vocabulary": {"size": 3}}, "vocabulary lacks"),
        ({"files": {}}, "decoder.embedded.norm.bias: none, not .16,.; .* and 47 more"),
        ({"files": {"../secret": {"bytes": 1, "sha256": ""}}}, "a key of files is"),
    ],
)
def test_a_wrong_manifest_is_refused(folder, change, message):
    manifest = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps({**manifest, **change}))
    with pytest.raises(FarspanError, match=message):
        read_model_folder(folder)


def test_weights_of_another_model_are_listed(folder):
    state = load_file(folder / "model.safetensors")
    state["tokens.weight"] = state["tokens.weight"][:3].clone()
    state["stray"] = torch.zeros(2)
    save_file(state, folder / "model.safetensors")
    data = (folder / "model.safetensors").read_bytes()
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["files"]["model.safetensors"] = {"bytes": len(data), "sha256": sha256(data).hexdigest()}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(FarspanError) as raised:
        read_model_folder(folder)
    assert "stray: (2,), not none" in str(raised.value)
    assert "tokens.weight: (3, 16), not (24, 16)" in str(raised.value)


def test_a_folder_of_anything_else_is_no_model_folder(tmp_path):
    assert not is_model_folder(tmp_path)
    with pytest.raises(FarspanError, match="is not a model folder"):
        read_model_folder(tmp_path)


def test_a_folder_of_another_kind_is_told_from_another_version(tmp_path):
    (tmp_path / "manifest.json").write_text('{"format": "farspan.corpus", "format_version": 1}')
    with pytest.raises(FarspanError, match=r"has format 'farspan.corpus', not 'farspan.model'; `farspan convert`"):
        read_model_folder(tmp_path)
