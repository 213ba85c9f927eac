"""Encoders of Hugging Face: weights, input length and the tokens around a text."""

import json
import os
import shutil
from dataclasses import replace
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from transformers import AutoModel, AutoTokenizer, RobertaConfig, RobertaModel

from corpora.errors import FarspanError
from tests.tiny_encoder import make_encoder
from trainer.scorer.encoder import describe_model, find_encoder, load_framing, load_weights, position_count


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return make_encoder(str(tmp_path_factory.mktemp("encoder") / "tiny"))


def test_nothing_in_a_weights_file_is_executed(tiny, tmp_path):
    class Attack:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "executed"),)

    hostile = shutil.copytree(tiny, tmp_path / "hostile")
    (hostile / "model.safetensors").unlink()
    torch.save({"embeddings": Attack()}, hostile / "pytorch_model.bin")
    with pytest.raises(FarspanError, match="weights cannot be loaded"):
        load_weights(find_encoder(str(hostile)), AutoModel)
    assert not (tmp_path / "executed").exists()


def test_weights_of_another_model_are_refused_unless_the_caller_does_not_use_them(tiny, tmp_path):
    """They would be filled up with random numbers; published encoders of texts have no pooler, for example."""
    deeper = shutil.copytree(tiny, tmp_path / "deeper")
    config = json.loads((deeper / "config.json").read_text())
    (deeper / "config.json").write_text(json.dumps(config | {"num_hidden_layers": 3}))
    with pytest.raises(FarspanError, match=r"the weights lack 16 parameters.*encoder\.layer\.2"):
        load_weights(find_encoder(str(deeper)), AutoModel)
    model: Any = load_weights(find_encoder(str(deeper)), AutoModel, unused=("layer.2.",))
    assert len(model.encoder.layer) == 3
    assert not model.training
    assert not any(parameter.requires_grad for parameter in model.parameters())


def test_a_model_is_described_without_weights(tiny, tmp_path):
    bare = shutil.copytree(tiny, tmp_path / "bare")
    files = find_encoder(tiny)
    (bare / "model.safetensors").unlink()
    model = describe_model(replace(files, folder=str(bare)), AutoModel, "encoder", "give another")
    assert {parameter.device.type for parameter in model.parameters()} == {"meta"}
    assert position_count(model) == position_count(load_weights(files, AutoModel)) == 64
    (bare / "config.json").write_text('{"model_type": "bert", "hidden_act": "wave"}')
    with pytest.raises(FarspanError, match=r"config.json describes no encoder \(.*wave.*\); give another"):
        describe_model(replace(files, folder=str(bare)), AutoModel, "encoder", "give another")


@pytest.mark.parametrize("pad", [0, 1, 3])
def test_the_longest_text_that_roberta_reads_has_as_many_positions_as_are_counted(pad):
    sizes: dict[str, Any] = {"vocab_size": 9, "hidden_size": 4, "num_hidden_layers": 1, "num_attention_heads": 1}
    model = RobertaModel(RobertaConfig(**sizes, intermediate_size=4, max_position_embeddings=12, pad_token_id=pad))
    count = position_count(model)
    model(torch.full((1, count), 5))
    with pytest.raises((IndexError, RuntimeError)):
        model(torch.full((1, count + 1), 5))


def test_texts_are_framed_as_the_models_own_tokenizer_frames_them(tiny):
    framing, own = load_framing(find_encoder(tiny)), AutoTokenizer.from_pretrained(tiny)
    for text in ("the quick fox", "the [MASK] fox", ""):
        (ids,) = framing.tokenizer.encode([text])
        expected = own(text, split_special_tokens=True)["input_ids"]
        assert np.concatenate([framing.before, ids, framing.after]).tolist() == expected
    assert (framing.pad, framing.mask) == (own.pad_token_id, own.mask_token_id)


def test_a_tokenizer_that_cannot_be_loaded_is_named(tiny, tmp_path):
    broken = shutil.copytree(tiny, tmp_path / "broken")
    (broken / "tokenizer.json").write_text("{")
    with pytest.raises(FarspanError, match=r"broken: its tokenizer cannot be loaded .*; give an encoder with a tokeni"):
        load_framing(find_encoder(str(broken)))


# Finding an encoder: a folder or a name on the hub, its files and its fingerprint


def test_what_is_no_encoder_is_refused(tiny, tmp_path):
    with pytest.raises(FarspanError, match="no such folder; give the folder of a BERT-like encoder"):
        find_encoder(str(tmp_path / "nothing"))
    with pytest.raises(FarspanError, match=r"has no config.json and no tokenizer and no weights"):
        find_encoder(str(tmp_path))
    copy = shutil.copytree(tiny, tmp_path / "copy")
    for kind, said in (("perceptron", "does not describe a known encoder"), ("bart", "a model with a decoder")):
        (copy / "config.json").write_text(json.dumps({"model_type": kind}))
        with pytest.raises(FarspanError, match=said):
            find_encoder(str(copy))
    (copy / "model.safetensors").rename(copy / "model.bak")
    with pytest.raises(FarspanError, match="has no weights"):
        find_encoder(str(copy))


def test_a_hub_that_cannot_be_reached(monkeypatch):
    import huggingface_hub

    unreachable = huggingface_hub.errors.LocalEntryNotFoundError("no route to the hub")
    monkeypatch.setattr(huggingface_hub, "snapshot_download", Mock(side_effect=unreachable))
    with pytest.raises(FarspanError, match=r"'facebook/contriever' is not a local folder.*no route.*hf download face"):
        find_encoder("facebook/contriever")


def test_the_fingerprint_follows_the_files(tiny, tmp_path):
    copy = shutil.copytree(tiny, tmp_path / "copy")
    (copy / "README.md").write_text("words about it")
    assert find_encoder(str(copy)).fingerprint == find_encoder(tiny).fingerprint
    make_encoder(str(copy), seed=1)
    assert find_encoder(str(copy)).fingerprint != find_encoder(tiny).fingerprint
