"""Tests of BART and PEGASUS."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    MBartConfig,
    MBartForConditionalGeneration,
    PegasusConfig,
    PegasusForConditionalGeneration,
    PegasusXConfig,
    PegasusXForConditionalGeneration,
)

from corpora.errors import FarspanError
from tests.trainer.conversion.models import VOCAB, assert_same_gradients, assert_same_seq2seq, disturbed, ours, text
from trainer.conversion.families import bart, pegasus
from trainer.conversion.names import load_state, save_state
from trainer.model.build import make_model
from trainer.model.config import ModelConfig
from trainer.model.patterns.block import Block
from trainer.model.patterns.block_global import BlockGlobal
from trainer.model.patterns.full import Full
from trainer.model.patterns.overlap import Overlap
from trainer.model.patterns.staggered import Staggered

SIZES = {
    "vocab_size": VOCAB,
    "d_model": 16,
    "encoder_layers": 2,
    "decoder_layers": 1,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 24,
    "decoder_ffn_dim": 24,
    "max_position_embeddings": 20,
    "init_std": 0.2,
    "dropout": 0.0,
    "attention_dropout": 0.0,
}


def tiny_bart(**options):
    return disturbed(BartForConditionalGeneration(BartConfig(**{**SIZES, **options})))


@pytest.mark.parametrize("lengths", [[1], [7, 7], [20, 3, 11], [1, 8]])
def test_logits_and_gradients_are_those_of_hugging_face(lengths):
    assert_same_seq2seq(bart, tiny_bart(), lengths)


@pytest.mark.parametrize("options", [{"scale_embedding": True}, {"activation_function": "gelu_new"}])
def test_every_option_that_is_read_is_the_same_model(options):
    assert_same_seq2seq(bart, tiny_bart(**options), [9, 4])


@pytest.mark.parametrize("lengths", [[1], [7, 7], [20, 3, 11]])
@pytest.mark.parametrize("options", [{}, {"scale_embedding": True}])
def test_mbart_has_the_same_logits_and_gradients(lengths, options):
    model = disturbed(MBartForConditionalGeneration(MBartConfig(**{**SIZES, **options})))
    assert_same_seq2seq(bart, model, lengths)


@pytest.mark.parametrize(
    "options",
    [
        {"tie_word_embeddings": False},
        {"decoder_ffn_dim": 8},
        {"decoder_attention_heads": 2},
        {"activation_function": "tanh"},
    ],
)
def test_what_our_models_cannot_do_is_refused_by_its_field(options):
    (field,) = options
    with pytest.raises(FarspanError, match=field):
        bart.read_config(BartConfig(**{**SIZES, **options}).to_dict())


@pytest.mark.parametrize("kind", [BartConfig, MBartConfig])
def test_a_written_configuration_is_read_back_as_it_was(kind):
    config = bart.read_config(kind(**SIZES, activation_dropout=0.25).to_dict())
    written = bart.write_config(config, VOCAB, {"<pad>": 1, "<bos>": 0, "<eos>": 2})
    assert written["model_type"] == kind.model_type
    assert bart.read_config(kind(**written).to_dict()) == config


LENGTHS = [[1, 1], [7, 3], [8, 5], [9, 8], [13, 1], [16, 12], [17, 9], [24, 16, 1], [29, 27], [40, 31]]


def _sees(pattern, query, key):
    """The paper's words once more, apart from those of the patterns."""
    if isinstance(pattern, Full):
        return True
    block = query // 8
    if isinstance(pattern, Overlap):
        return block * 8 - 4 <= key < block * 8 + 12
    if isinstance(pattern, BlockGlobal) and (query % 8 < 3 or key % 8 < 3):
        return True
    return block == key // 8


@pytest.fixture(scope="module")
def theirs():
    config = BartConfig(
        vocab_size=VOCAB, d_model=16, encoder_layers=2, decoder_layers=1, encoder_attention_heads=4,
        decoder_attention_heads=4, encoder_ffn_dim=24, decoder_ffn_dim=24, max_position_embeddings=40, init_std=0.2,
        dropout=0.0, attention_dropout=0.0,
    )  # fmt: skip
    return disturbed(BartForConditionalGeneration(config))


@pytest.mark.parametrize("pattern", [Full(), Block(8), Overlap(8), BlockGlobal(8, 3)], ids=lambda p: p.pattern)
@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
def test_logits_and_gradients_are_those_of_bart_under_the_dense_mask(theirs, pattern, lengths):
    full = ours(bart, theirs)
    config = bart.read_config(theirs.config.to_dict())
    model = make_model(replace(config, encoder=replace(config.encoder, attention=pattern)), VOCAB)
    model.load_state_dict(full.state_dict())
    model.eval()

    (ids, real), (target, _) = text(lengths), text([5] * len(lengths), seed=1)
    places = range(ids.shape[1])
    seen = torch.tensor([[_sees(pattern, query, key) for key in places] for query in places])
    additive = torch.zeros(len(ids), 1, *seen.shape)
    additive = additive.masked_fill(~(seen & real[:, None, :])[:, None], torch.finfo(torch.float32).min)
    encoded = theirs.model.encoder(ids, attention_mask=additive)
    expected = theirs(encoder_outputs=encoded, attention_mask=real.long(), decoder_input_ids=target).logits
    found = model.logits(model.decode(target, model.encode(ids, None if real.all() else real)))
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)

    weights = torch.randn(expected.shape, generator=torch.Generator().manual_seed(2)) / expected.numel() ** 0.5
    theirs.zero_grad()
    (expected * weights).sum().backward()
    (found * weights).sum().backward()
    assert_same_gradients(bart, theirs, model)


PEGASUS_SIZES = {
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
    model = disturbed(PegasusForConditionalGeneration(PegasusConfig(**{**PEGASUS_SIZES, **options})))
    for stack in (model.model.encoder, model.model.decoder):
        stack.embed_positions.weight.data = stack.embed_positions.create_weight()  # fixed waves, disturbed too
    return model


def tiny_pegasus_x(**options):
    config = PegasusXConfig(**{**PEGASUS_SIZES, **LONG, **options})
    return disturbed(PegasusXForConditionalGeneration(config))


def read(kind, **options) -> ModelConfig:
    return pegasus.read_config(kind(**{**PEGASUS_SIZES, **options}).to_dict())


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
def test_every_option_of_pegasus_is_the_same_model(options):
    assert_same_seq2seq(pegasus, tiny_pegasus_x(**options), [17, 6], pad=0)


@pytest.mark.parametrize(
    "options",
    [{"tie_word_embeddings": False}, {"decoder_ffn_dim": 8}, {"decoder_attention_heads": 2}, {"block_size": 7}],
)
def test_what_our_models_cannot_do_is_refused(options):
    (field,) = options
    with pytest.raises(FarspanError, match="size is 7" if field == "block_size" else field):
        read(PegasusXConfig, **{**LONG, **options})


def test_a_configuration_of_pegasus_is_read_back_as_it_was():
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
