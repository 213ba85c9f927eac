"""Tests of families, names and fields of Hugging Face's models."""

from __future__ import annotations

import argparse
from dataclasses import replace
from itertools import chain

import pytest
import torch
from transformers.activations import ACT2FN

from corpora.errors import FarspanError
from corpora.flags import add_flags
from corpora.settings import make
from tests.trainer.conversion.models import tiny_config, tiny_model
from trainer.conversion.families import bart, bert, longformer, pegasus, roberta, t5
from trainer.conversion.family import FAMILIES, family_of
from trainer.conversion.hugging_face import write_hugging_face
from trainer.conversion.names import (
    Tensors,
    load_state,
    read_activation,
    require,
    save_state,
    token_ids,
    write_activation,
)
from trainer.model.config import EncoderConfig
from trainer.model.layers.pooled import Pooling
from trainer.model.layers.sublayers import ACTIVATIONS
from trainer.model.patterns.block_global import BlockGlobal
from trainer.model.patterns.full import Full
from trainer.model.positions import Learned
from trainer.options import Conversion, Convert
from trainer.recipe import load_recipe


def test_each_module_is_a_family_with_types_and_patterns_of_its_own():
    assert {bart, bert, longformer, pegasus, roberta, t5} <= set(FAMILIES)
    for family in FAMILIES:
        wanted = ["MODEL_TYPES", "IGNORED", "PATTERNS", "read_config", "name_map"]
        assert not {*wanted, *(["write_config"] if family.PATTERNS else [])} - set(vars(family))
        assert family.MODEL_TYPES
    for kind in ("MODEL_TYPES", "PATTERNS"):
        names = list(chain.from_iterable(getattr(family, kind) for family in FAMILIES))
        assert len(names) == len(set(names))
    assert all(family_of(kind) is family for family in FAMILIES for kind in family.MODEL_TYPES)


@pytest.mark.parametrize(
    ("encoder", "message"),
    [
        (
            EncoderConfig(layers=2, positions=Learned(16), attention=BlockGlobal(8, 2)),
            "attention pattern 'block_global'",
        ),
        (
            EncoderConfig(layers=2, positions=Learned(16), attention=Full(), pooling=Pooling(1, 6, 4, 3)),
            "model.encoder.pooling.layers: farspan 1, Hugging Face None",
        ),
    ],
)
def test_a_model_that_hugging_face_has_no_class_for_is_refused(tmp_path, encoder, message):
    with pytest.raises(FarspanError, match=message):
        write_hugging_face(tiny_model(tiny_config(encoder)), tmp_path / "out")


@pytest.mark.parametrize("option", [{"global_cross_attention": True}, {"cross_attention": (0,)}])
def test_decoders_that_pegasus_x_of_hugging_face_lacks_are_refused(tmp_path, option):
    config = load_recipe("tiny_pegasus_x").model
    config = replace(config, decoder=replace(config.decoder, **option))
    (field,) = option
    with pytest.raises(FarspanError, match=f"model.decoder.{field}: farspan .*, Hugging Face"):
        write_hugging_face(tiny_model(config), tmp_path / "out")


def test_every_field_that_cannot_be_said_is_listed(tmp_path):
    config = tiny_config()
    config = replace(
        config, norm=replace(config.norm, eps=1e-3), decoder=replace(config.decoder, positions=Learned(12))
    )
    with pytest.raises(FarspanError) as raised:
        write_hugging_face(tiny_model(config), tmp_path / "out")
    assert "model.norm.eps: farspan 0.001, Hugging Face 1e-05" in str(raised.value)
    assert "model.decoder.positions.count: farspan 12, Hugging Face 16" in str(raised.value)
    assert not list(tmp_path.iterdir())


def typed(line: str) -> Convert:
    parser = argparse.ArgumentParser(exit_on_error=False)
    add_flags(parser, Convert)
    return make(Convert, vars(parser.parse_args(line.split())))


def test_without_flags_nothing_is_changed_on_the_way():
    assert typed("from to") == Convert(source="from", output="to")
    assert typed("from to").conversion == Conversion(to="farspan")


def test_every_option_has_a_flag():
    line = "a b --recipe tiny --set model.width=8 --set model.dropout=0 --masks m --vocab-size 9 --tokenizer t "
    assert typed(f"{line} --to huggingface --checkpoint best").conversion == Conversion(
        recipe="tiny",
        assignments=("model.width=8", "model.dropout=0"),
        masks="m",
        vocab_size=9,
        tokenizer="t",
        to="huggingface",
        checkpoint="best",
    )


def test_another_format_is_refused():
    with pytest.raises(argparse.ArgumentError, match="invalid choice: 'onnx'"):
        typed("a b --to onnx")


NAMES = {
    "qkv": Tensors(("q", "k", "v")),
    "positions": Tensors(("places",), skip_rows=2),
    "typed": Tensors(("rows",), add_row="types"),
}

SHAPES = {"qkv": torch.Size([6, 3]), "positions": torch.Size([3, 3]), "typed": torch.Size([4, 3])}


def stored():
    sizes = {"q": 2, "k": 2, "v": 2, "places": 5, "rows": 4, "types": 2}
    generator = torch.Generator().manual_seed(0)
    return {name: torch.randn(rows, 3, generator=generator) for name, rows in sizes.items()}


def test_tensors_are_joined_cut_and_added():
    theirs = stored()
    state = load_state(NAMES, {**theirs, "copy.of.q": theirs["q"]}, SHAPES, ["copy.*"])
    assert torch.equal(state["qkv"][2:4], theirs["k"])
    assert torch.equal(state["positions"], theirs["places"][2:])
    assert torch.equal(state["typed"], theirs["rows"] + theirs["types"][0])


def test_what_is_saved_loads_as_it_was():
    state = load_state(NAMES, stored())
    again = load_state(NAMES, save_state(NAMES, state), SHAPES)
    assert all(torch.equal(again[name], state[name]) for name in NAMES)


def test_everything_wrong_is_listed_at_once():
    theirs = stored()
    del theirs["k"]
    theirs |= {"lm_head.bias": torch.zeros(3), "final_logits_bias": torch.ones(1, 3), "places": torch.zeros(9, 3)}
    with pytest.raises(FarspanError) as raised:
        load_state(NAMES, theirs, SHAPES, ["final_logits_bias"])
    (line,) = str(raised.value).splitlines()
    assert "missing: k" in line
    assert "unexpected: lm_head.bias (3,)" in line
    assert "not zero: final_logits_bias" in line
    assert "shape: places (9, 3) makes positions (7, 3), not (3, 3)" in line


def test_of_many_the_first_few_are_named():
    with pytest.raises(FarspanError, match=r"beside them .missing: k; .*; and 2 more.; give the folder") as raised:
        load_state(NAMES, {}, SHAPES)
    assert len(str(raised.value).splitlines()) == 1


def test_numbers_that_are_no_weights_are_listed():
    theirs = {**stored(), "k": torch.ones(2, 3, dtype=torch.int8)}
    theirs["places"][3, 1], theirs["types"][0, 0] = torch.nan, torch.inf
    with pytest.raises(FarspanError) as raised:
        load_state(NAMES, theirs, SHAPES)
    (line,) = str(raised.value).splitlines()
    assert "of integer type torch.int8: k" in line
    assert "not finite: places" in line
    assert "not finite: rows, types" in line


def test_parts_that_cannot_be_joined_are_named():
    with pytest.raises(FarspanError, match=r"cannot be joined into qkv: q \(2, 3\), k \(2, 5\), v \(2, 3\)"):
        load_state(NAMES, {**stored(), "k": torch.zeros(2, 5)})


@pytest.mark.parametrize("theirs", ["gelu", "relu", "silu", "swish", "gelu_new", "gelu_pytorch_tanh"])
def test_an_activation_is_the_same_function_under_both_names(theirs):
    x = torch.linspace(-4, 4, 41)
    torch.testing.assert_close(ACTIVATIONS[read_activation({"f": theirs}, "f")](x), ACT2FN[theirs](x))


@pytest.mark.parametrize("ours", ACTIVATIONS)
def test_a_written_activation_is_read_back(ours):
    assert read_activation({"f": write_activation(ours)}, "f") == ours


def test_an_unknown_activation_is_named_with_the_known_ones():
    with pytest.raises(FarspanError, match=r"config.json: feed_forward_proj is 'selu'; known are gelu, relu, silu"):
        read_activation({"feed_forward_proj": "selu"}, "feed_forward_proj")


def test_a_fixed_property_may_be_left_out_but_not_be_another():
    require({"is_decoder": False, "other": 3}, is_decoder=False, scale_embedding=True)
    with pytest.raises(FarspanError, match=r"config.json: is_decoder is True; farspan supports only False"):
        require({"is_decoder": True}, is_decoder=False)


def test_decoders_start_with_the_end():
    assert token_ids({"<pad>": 7, "<bos>": 1, "<eos>": 2, "<mask>": 9}) == {
        "pad_token_id": 7, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 2,
    }  # fmt: skip
