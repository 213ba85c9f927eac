"""PEGASUS and PEGASUS-X: Hugging Face's models as oracles."""

from __future__ import annotations

import pytest
from transformers import (
    PegasusConfig,
    PegasusForConditionalGeneration,
    PegasusXConfig,
    PegasusXForConditionalGeneration,
)

from corpora.errors import FarspanError
from tests.trainer.conversion.oracle import VOCAB, assert_same_seq2seq, disturbed
from trainer.conversion.families import pegasus
from trainer.conversion.names import load_state, save_state
from trainer.model.config import ModelConfig
from trainer.model.patterns.full import Full
from trainer.model.patterns.staggered import Staggered

SIZES = {
    "vocab_size": VOCAB,
    "d_model": 16,
    "encoder_layers": 3,  # plain, shifted and plain
    "decoder_layers": 1,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 24,
    "decoder_ffn_dim": 24,
    "max_position_embeddings": 40,
    "activation_function": "relu",
    "scale_embedding": True,
    "init_std": 0.2,
    "dropout": 0.0,
    "attention_dropout": 0.0,
}
LONG = {"block_size": 8, "num_global_tokens": 3}


def tiny_pegasus(**options):
    model = disturbed(PegasusForConditionalGeneration(PegasusConfig(**{**SIZES, **options})))
    for stack in (model.model.encoder, model.model.decoder):
        stack.embed_positions.weight.data = stack.embed_positions.create_weight()  # fixed waves, disturbed too
    return model


def tiny_pegasus_x(**options):
    config = PegasusXConfig(**{**SIZES, **LONG, **options})
    return disturbed(PegasusXForConditionalGeneration(config))


def read(kind, **options) -> ModelConfig:
    return pegasus.read_config(kind(**{**SIZES, **options}).to_dict())


@pytest.mark.parametrize("lengths", [[1], [7, 7], [20, 3, 11]])
def test_pegasus_has_the_same_logits_and_gradients(lengths):
    assert_same_seq2seq(pegasus, tiny_pegasus(), lengths, pad=0)


@pytest.mark.parametrize(
    "lengths",
    [[1], [3, 3], [4], [5, 1], [7], [8, 8], [9, 4], [11], [12, 8], [13, 5, 1], [16, 12], [17], [20, 15], [21, 4, 8]],
)
def test_pegasus_x_has_the_same_logits_and_gradients_around_every_edge(lengths):
    model = assert_same_seq2seq(pegasus, tiny_pegasus_x(), lengths, pad=0)
    assert [layer.attention.pattern.shifted for layer in model.encoder.layers] == [False, True, False]


@pytest.mark.parametrize(
    "options",
    [
        {"stagger_local_blocks": False, "block_size": 5},
        {"scale_embedding": False},
        {"activation_function": "gelu"},
        {"num_global_tokens": 1},
    ],
)
def test_every_option_that_is_read_is_the_same_model(options):
    assert_same_seq2seq(pegasus, tiny_pegasus_x(**options), [17, 6], pad=0)


@pytest.mark.parametrize(
    "options",
    [{"tie_word_embeddings": False}, {"decoder_ffn_dim": 8}, {"decoder_attention_heads": 2}, {"block_size": 7}],
)
def test_what_our_models_cannot_do_is_refused(options):
    (field,) = options
    with pytest.raises(FarspanError, match="size is 7" if field == "block_size" else field):
        read(PegasusXConfig, **{**LONG, **options})


def test_a_written_configuration_is_read_back_as_it_was():
    config = read(PegasusXConfig, **LONG, activation_dropout=0.25)
    written = pegasus.write_config(config, VOCAB, {"<pad>": 0, "<bos>": 2, "<eos>": 1})
    assert pegasus.read_config(PegasusXConfig(**written).to_dict()) == config
    assert config.encoder.attention == Staggered(8, 3)


def test_only_staggered_encoders_are_written():
    short = read(PegasusConfig)
    assert short.encoder.attention == Full()
    with pytest.raises(FarspanError, match="'full'; PEGASUS-X's is 'staggered'"):
        pegasus.write_config(short, VOCAB, {"<pad>": 0, "<bos>": 2, "<eos>": 1})


def test_stored_tensors_survive_the_way_there_and_back():
    stored = tiny_pegasus_x().state_dict()
    names = pegasus.name_map(read(PegasusXConfig, **LONG))
    there = save_state(names, load_state(names, stored, ignored=pegasus.IGNORED))
    assert all(stored[name].equal(there[name]) for name in there)
    assert {name for name in stored if name not in there} == {
        "lm_head.weight",
        "model.encoder.embed_tokens.weight",
        "model.decoder.embed_tokens.weight",
    }
