"""ModernBERT and Ettin: Hugging Face's models as oracles, on sequences beyond the window."""

import json
from dataclasses import replace
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForMaskedLM, ModernBertConfig, ModernBertForMaskedLM

from corpora.errors import FarspanError
from tests.trainer.conversion.models import (
    VOCAB,
    assert_same,
    assert_same_masked_lm,
    disturbed,
    loaded,
    ours,
    text,
)
from trainer.conversion.convert import convert
from trainer.conversion.families import modernbert
from trainer.conversion.family import family_of
from trainer.conversion.model_folder import read_model_folder
from trainer.model.patterns.layered import Layered
from trainer.options import Conversion

# layers and heads of the released sizes, ModernBERT's and Ettin's bases of rotary positions
SHAPES: dict[str, dict[str, Any]] = {
    "modernbert": {"num_hidden_layers": 7, "num_attention_heads": 4},
    "ettin": {"num_hidden_layers": 4, "num_attention_heads": 2, "local_rope_theta": 160_000.0},
    "wide": {"num_hidden_layers": 3, "num_attention_heads": 2, "local_attention": 26, "intermediate_size": 40},
}
LENGTHS = [[1], [4, 2], [5, 5], [6], [12, 1, 9], [9, 8], [23, 40, 31], [57, 33]]


def modern_bert(shape="modernbert", **options):
    sizes = {
        "vocab_size": VOCAB, "hidden_size": 24, "intermediate_size": 20, "local_attention": 8, "pad_token_id": 1,
        "bos_token_id": 0, "eos_token_id": 2, "cls_token_id": 0, "sep_token_id": 2, "initializer_range": 0.2,
    }  # fmt: skip
    torch.manual_seed(0)
    return disturbed(ModernBertForMaskedLM(ModernBertConfig(**{**sizes, **SHAPES[shape], **options})))


@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
@pytest.mark.parametrize("shape", SHAPES)
def test_logits_and_gradients_are_those_of_hugging_face(shape, lengths):
    model = assert_same_masked_lm(modernbert, modern_bert(shape), lengths)
    assert [layer.attention.pattern.local for layer in model.encoder.layers[:4]] == [False, True, True, False][
        : len(model.encoder.layers)
    ]


@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
@pytest.mark.parametrize("shape", SHAPES)
def test_padding_on_the_left_is_the_same(shape, lengths):
    theirs = modern_bert(shape)
    model = ours(modernbert, theirs)
    ids, real = (x.flip(1) for x in text(lengths))
    expected = theirs(input_ids=ids, attention_mask=real.long()).logits[real]
    found = model.logits(model.encode(ids, None if real.all() else real))[real]
    assert_same(modernbert, theirs, model, expected, found)


@torch.no_grad()
@pytest.mark.parametrize("cut", [1, 3, 9, 17, 30])
@pytest.mark.parametrize("shape", SHAPES)
def test_packed_documents_are_those_of_masks(shape, cut):
    """The library has no documents, but takes whole masks."""
    theirs = modern_bert(shape)
    model, reach = ours(modernbert, theirs), theirs.config.local_attention // 2
    ids, real = text([40, 31])
    segments = (torch.arange(40) // cut).expand(2, -1).masked_fill(~real, -1)
    same = (segments[:, :, None] == segments[:, None]) & real[:, None]
    near = same & ((torch.arange(40)[:, None] - torch.arange(40)).abs() <= reach)
    masks = {
        name: torch.zeros(2, 1, 40, 40).masked_fill(~(mask | ~real[..., None])[:, None], torch.finfo().min)
        for name, mask in (("full_attention", same), ("sliding_attention", near))
    }
    expected = theirs(input_ids=ids, attention_mask=masks).logits
    torch.testing.assert_close(
        model.logits(model.encode(ids, real, segments))[real], expected[real], atol=1e-5, rtol=1e-5
    )


@pytest.mark.parametrize(
    "options",
    [
        {"hidden_activation": "gelu_pytorch_tanh"},
        {"norm_eps": 1e-3},
        {"layer_types": ["sliding_attention"] * 4},
        {"layer_types": ["full_attention"] * 4},
        {"global_attn_every_n_layers": 2},
        {"global_rope_theta": 100.0, "local_rope_theta": 9.0},
    ],
    ids=str,
)
def test_every_option_that_is_read_is_the_same_model(options):
    assert_same_masked_lm(modernbert, modern_bert("ettin", **options), [29, 17])


@pytest.mark.parametrize(
    "options",
    [
        {"norm_bias": True},
        {"attention_bias": True},
        {"mlp_bias": True},
        {"classifier_bias": True},
        {"decoder_bias": False},
        {"embedding_dropout": 0.1},
        {"classifier_activation": "relu"},
        {"layer_types": ["full_attention", "sliding_attention", "full_attention", "full_attention"]},
    ],
    ids=str,
)
def test_what_our_models_cannot_do_is_refused_by_its_field(options):
    (field,) = options
    with pytest.raises(FarspanError, match=field):
        modernbert.read_config(modern_bert("ettin", **options).config.to_dict())


@pytest.mark.parametrize("shape", SHAPES)
def test_a_folder_comes_back(shape, tmp_path):
    theirs = modern_bert(shape)
    theirs.save_pretrained(tmp_path / "theirs")
    convert(tmp_path / "theirs", tmp_path / "model", Conversion())
    convert(tmp_path / "model", tmp_path / "back", Conversion(to="huggingface"))
    before, after = (load_file(tmp_path / name / "model.safetensors") for name in ("theirs", "back"))
    assert before.keys() - after.keys() <= {"decoder.weight"}
    assert all(torch.equal(before[name], tensor) for name, tensor in after.items())
    again, report = AutoModelForMaskedLM.from_pretrained(tmp_path / "back", output_loading_info=True)
    assert not any(report[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    values = json.loads((tmp_path / "back/config.json").read_text())
    assert (values["cls_token_id"], values["sep_token_id"], values["pad_token_id"]) == (0, 2, 1)
    ids, _ = text([40])
    with torch.no_grad():
        model = loaded(read_model_folder(tmp_path / "model"))
        torch.testing.assert_close(again.eval()(input_ids=ids).logits, theirs(input_ids=ids).logits)
        torch.testing.assert_close(model.logits(model.encode(ids)), theirs(input_ids=ids).logits, atol=1e-5, rtol=1e-5)
    assert "AutoModelForMaskedLM" in (tmp_path / "back/README.md").read_text()
    assert not (tmp_path / "back/generation_config.json").exists()


def test_uneven_windows_are_not_written():
    config = modernbert.read_config(modern_bert().config.to_dict())
    uneven = replace(config, encoder=replace(config.encoder, attention=Layered(3, 4, 3, 0)))
    with pytest.raises(FarspanError, match="equally far"):
        modernbert.write_config(uneven, VOCAB, {"<pad>": 1})


def test_the_decoders_of_ettin_are_refused():
    with pytest.raises(FarspanError, match="prediction head and an output bias"):
        family_of("modernbert-decoder")
