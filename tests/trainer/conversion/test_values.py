"""Values of ``config.json``: activations there and back, and properties that our models do not have."""

from __future__ import annotations

import pytest
import torch
from transformers.activations import ACT2FN

from corpora.errors import FarspanError
from trainer.conversion.names import read_activation, require, token_ids, write_activation
from trainer.model.layers.sublayers import ACTIVATIONS


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
