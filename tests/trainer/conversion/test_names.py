from __future__ import annotations

import pytest
import torch
from transformers.activations import ACT2FN

from corpora.errors import FarspanError
from trainer.conversion.names import (
    Tensors,
    load_state,
    read_activation,
    require,
    save_state,
    token_ids,
    write_activation,
)
from trainer.model.layers.sublayers import ACTIVATIONS

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


# Values of ``config.json``: activations there and back, and properties that our models do not have


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
