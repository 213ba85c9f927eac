import pytest
from transformers import BartConfig, BartForConditionalGeneration

from corpora.errors import FarspanError
from tests.trainer.conversion.oracle import VOCAB, assert_same_seq2seq, disturbed
from trainer.conversion.families import bart

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


def test_a_written_configuration_is_read_back_as_it_was():
    config = bart.read_config(BartConfig(**SIZES, activation_dropout=0.25).to_dict())
    written = bart.write_config(config, VOCAB, {"<pad>": 1, "<bos>": 0, "<eos>": 2})
    assert bart.read_config(BartConfig(**written).to_dict()) == config
