"""Opened models: what they can generate for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from corpora.errors import FarspanError
from corpora.storage.manifest import Manifest
from objectives.api.special_tokens import SpecialTokens
from tests.trainer.conversion.models import tiny_config, tiny_model, vocabulary
from trainer.conversion.hugging_face import write_hugging_face
from trainer.conversion.model_folder import write_model_folder
from trainer.prediction.opened import OpenedModel, open_model


def test_a_model_without_decoder_generates_nothing(tmp_path):
    write_model_folder(tiny_model(tiny_config(decoder=False)), tmp_path / "encoder")
    with pytest.raises(FarspanError, match="has no decoder, so it generates no text; give an encoder-decoder"):
        open_model(tmp_path / "encoder")


def manifest_of(fingerprint, vocab_size=23):
    tokenizer = {"fingerprint": fingerprint, "vocab_size": vocab_size, "owned_tokens": {}}
    return Manifest("farspan.pairs", {}, 0, 64, tokenizer)


def opened_of(fingerprint=None, **ids):
    """A model of 24 rows; ``ids`` in place of its special tokens."""
    known = vocabulary("<mask>", fingerprint=fingerprint)
    if ids:
        known = replace(known, special=SpecialTokens(ids, 24))
    return OpenedModel(Path("folder"), tiny_model(known=known), None, {})


def test_pairs_of_another_tokenizer_are_refused():
    opened_of("a" * 64).check_pairs(manifest_of("a" * 64), "pairs")
    opened_of(None).check_pairs(manifest_of("b" * 64), "pairs")  # a folder without a tokenizer knows none
    with pytest.raises(FarspanError, match="pairs: was made with the tokenizer bbbbbbbbbbbb, the model folder with"):
        opened_of("a" * 64).check_pairs(manifest_of("b" * 64), "pairs")
    with pytest.raises(FarspanError, match="its tokenizer has 25 ids, the model folder 24 rows"):
        opened_of(None).check_pairs(manifest_of("b" * 64, 25), "pairs")


def test_tokens_that_only_a_task_knows_have_ids_beyond_the_model():
    needed = SpecialTokens({"<pad>": 1, "<doc-sep>": 23}, 24)
    found = opened_of().special_for(needed, manifest_of("a" * 64))
    assert {name: found.ids[name] for name in ("<pad>", "<eos>", "<mask>")} == {"<pad>": 1, "<eos>": 2, "<mask>": 23}
    assert found.ids["<doc-sep>"] == 24


def test_a_model_without_an_end_generates_nothing():
    with pytest.raises(FarspanError, match="folder: the model has no special token <eos>; give another model"):
        opened_of(**{"<pad>": 1}).special_for(SpecialTokens({}, 24), manifest_of("a" * 64))


def test_the_model_is_built_for_evaluation_with_its_weights_in_the_type_that_is_asked_for():
    opened = opened_of()
    model = opened.build(torch.device("cpu"), torch.bfloat16)
    assert not model.training
    assert not any(parameter.requires_grad for parameter in model.parameters())
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, opened.model.state[name].bfloat16())
    assert opened.decoder_positions == 16


def test_an_entry_names_the_weights_by_their_hash(tmp_path):
    model = tiny_model()
    for name, seed in (("one", 0), ("same", 0), ("other", 1)):
        write_model_folder(tiny_model(seed=seed), tmp_path / name)
    write_hugging_face(model, tmp_path / "theirs")
    found = {name: open_model(tmp_path / name).entry for name in ("one", "same", "other", "theirs")}
    assert found["one"]["sha256"] == found["same"]["sha256"] != found["other"]["sha256"]
    assert found["theirs"]["folder"] == "theirs"
    assert {entry["vocab_size"] for entry in found.values()} == {model.vocabulary.size}
    assert {entry["checkpoint"] for entry in found.values()} == {None}
