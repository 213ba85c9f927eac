"""Tests of Longformer, LED and BERT."""

from typing import Any

import pytest
import torch
from transformers import (
    BertConfig,
    BertForMaskedLM,
    LEDConfig,
    LEDForConditionalGeneration,
    LongformerConfig,
    LongformerForMaskedLM,
    RobertaConfig,
    RobertaForMaskedLM,
)

from corpora.errors import FarspanError
from tests.trainer.conversion.models import VOCAB, assert_same_masked_lm, assert_same_seq2seq, disturbed, ours, text
from trainer.conversion.families import bert, longformer, roberta
from trainer.conversion.names import load_state, save_state
from trainer.model.patterns.window import Window

LED = {
    "vocab_size": VOCAB, "d_model": 16, "encoder_layers": 2, "decoder_layers": 1, "encoder_attention_heads": 4,
    "decoder_attention_heads": 4, "encoder_ffn_dim": 24, "decoder_ffn_dim": 24, "max_encoder_position_embeddings": 40,
    "max_decoder_position_embeddings": 12, "attention_window": 8, "init_std": 0.2, "dropout": 0.0,
}  # fmt: skip

LONGFORMER = {
    "vocab_size": VOCAB, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 24,
    "max_position_embeddings": 42, "attention_window": 8, "initializer_range": 0.2, "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0, "layer_norm_eps": 1e-3,
}  # fmt: skip

LENGTHS = [[1], [4, 2], [5], [8, 8], [9, 3], [12, 1, 13], [16], [17, 11], [33, 40]]


def tiny_led(**options):
    return disturbed(LEDForConditionalGeneration(LEDConfig(**{**LED, **options})))


def tiny_longformer(**options):
    return disturbed(LongformerForMaskedLM(LongformerConfig(**{**LONGFORMER, **options})))


def chosen(lengths, share):
    """``(B, L)`` bool, the first position of each row and ``share`` of the others, none at padding."""
    if share is None:
        return None
    positions = torch.rand(len(lengths), max(lengths), generator=torch.Generator().manual_seed(3)) < share
    positions[:, 0] = True
    return positions & (torch.arange(max(lengths)) < torch.tensor(lengths)[:, None])


@pytest.mark.parametrize("share", [None, 0.0, 0.3])
@pytest.mark.parametrize("lengths", LENGTHS)
def test_led_gives_the_same_logits_and_gradients(lengths, share):
    assert_same_seq2seq(longformer, tiny_led(), lengths, global_positions=chosen(lengths, share))


@pytest.mark.parametrize("share", [None, 0.3])
@pytest.mark.parametrize("window", [4, 16, [4, 8], [8, 4]])  # theirs fails at 2
def test_led_of_other_windows_is_the_same(window, share):
    lengths = [31, 18]
    model = assert_same_seq2seq(
        longformer, tiny_led(attention_window=window), lengths, global_positions=chosen(lengths, share)
    )
    assert model.encoder.pattern == Window(window if isinstance(window, int) else tuple(window))


@pytest.mark.parametrize("share", [None, 0.0, 0.3])
@pytest.mark.parametrize("lengths", LENGTHS)
def test_longformer_gives_the_same_logits_and_gradients(lengths, share):
    assert_same_masked_lm(longformer, tiny_longformer(), lengths, global_positions=chosen(lengths, share))


def test_rows_of_which_only_one_has_global_positions():
    positions = torch.zeros(2, 19, dtype=torch.bool)
    positions[1, [4, 5, 11]] = True
    assert_same_seq2seq(longformer, tiny_led(), [19, 14], global_positions=positions)


def test_a_text_that_fits_is_encoded_though_its_last_window_would_not():
    theirs = tiny_led(max_encoder_position_embeddings=30)
    ids, _ = text([29])
    with pytest.raises(IndexError):  # theirs pads it to 32
        theirs.led.encoder(input_ids=ids)
    wider = tiny_led(max_encoder_position_embeddings=32)
    wider.load_state_dict(
        {**theirs.state_dict(), "led.encoder.embed_positions.weight": torch.cat([
            theirs.led.encoder.embed_positions.weight, torch.zeros(2, 16)
        ])}
    )  # fmt: skip
    expected = wider.led.encoder(input_ids=ids).last_hidden_state
    torch.testing.assert_close(ours(longformer, theirs).encode(ids).states, expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    ("config", "options"),
    [
        (LEDConfig, {"decoder_ffn_dim": 8}),
        (LongformerConfig, {"hidden_act": "relu"}),
        (LongformerConfig, {"pad_token_id": 0}),
    ],
)
def test_what_our_models_cannot_do_is_refused_by_its_field(config, options):
    (field,) = options
    with pytest.raises(FarspanError, match=field):
        longformer.read_config(config(**{**(LED if config is LEDConfig else LONGFORMER), **options}).to_dict())


@pytest.mark.parametrize("window", [8, [4, 8]])
def test_a_written_model_is_read_back_as_it_was(window):
    theirs = tiny_led(attention_window=window, activation_dropout=0.25)
    config = longformer.read_config(theirs.config.to_dict())
    written = longformer.write_config(config, VOCAB, {"<pad>": 1, "<bos>": 0, "<eos>": 2})
    again = LEDForConditionalGeneration(LEDConfig(**written)).eval()
    assert longformer.read_config(again.config.to_dict()) == config
    state = save_state(longformer.name_map(config), ours(longformer, theirs).state_dict())
    missing, unexpected = again.load_state_dict(state, strict=False)
    assert not unexpected
    assert all(name.endswith(("embed_tokens.weight", "lm_head.weight", "final_logits_bias")) for name in missing)
    again.tie_weights()
    ids, _ = text([13])
    inputs = {"input_ids": ids, "decoder_input_ids": ids[:, :5], "global_attention_mask": chosen([13], 0.3).long()}
    torch.testing.assert_close(again(**inputs).logits, theirs(**inputs).logits)


SIZES: dict[str, Any] = {
    "vocab_size": VOCAB, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 24,
    "max_position_embeddings": 22, "initializer_range": 0.2, "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
}  # fmt: skip

FAMILIES = {"bert": (bert, BertConfig, BertForMaskedLM, 0), "roberta": (roberta, RobertaConfig, RobertaForMaskedLM, 1)}


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("lengths", [[1], [6, 6], [20, 3, 11]])
def test_logits_and_gradients_are_those_of_hugging_face(name, lengths):
    family, config, kind, pad = FAMILIES[name]
    assert_same_masked_lm(family, disturbed(kind(config(**SIZES, layer_norm_eps=1e-3))), lengths, pad)


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("option", [{"hidden_act": "relu"}, {"tie_word_embeddings": False}, {"is_decoder": True}])
def test_what_bert_has_and_our_models_have_not_is_refused(name, option):
    family, config, _, _ = FAMILIES[name]
    (field,) = option
    with pytest.raises(FarspanError, match=field):
        family.read_config(config(**SIZES, **option).to_dict())


def test_the_heads_that_only_pretraining_used_are_passed_over():
    theirs = BertForMaskedLM(BertConfig(**SIZES))
    names = bert.name_map(bert.read_config(theirs.config.to_dict()))
    more = {"bert.pooler.dense.weight": torch.ones(16, 16), "cls.seq_relationship.bias": torch.ones(2)}
    assert load_state(names, {**theirs.state_dict(), **more}, None, bert.IGNORED).keys() == names.keys()
