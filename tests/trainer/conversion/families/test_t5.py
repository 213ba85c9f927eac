"""T5 and LongT5: Hugging Face's models as oracles."""

from typing import Any

import pytest
import torch
from transformers import (
    AutoModelForSeq2SeqLM,
    LongT5Config,
    LongT5ForConditionalGeneration,
    MT5ForConditionalGeneration,
    T5ForConditionalGeneration,
    UMT5ForConditionalGeneration,
)

from corpora.errors import FarspanError
from tests.trainer.conversion.models import VOCAB, assert_same_seq2seq, disturbed, loaded, text, tiny_model
from tests.trainer.generation.models import greedy
from trainer.conversion.adapt import differences
from trainer.conversion.families import t5
from trainer.conversion.hugging_face import read_hugging_face, write_hugging_face
from trainer.conversion.names import load_state, save_state
from trainer.model.config import DecoderConfig, EncoderConfig, ModelConfig, OutputConfig
from trainer.model.layers.heads import HeadsConfig
from trainer.model.layers.sublayers import EmbeddingConfig, FeedForwardConfig, NormConfig
from trainer.model.patterns import Local, TGlobal
from trainer.model.positions import Buckets

SIZES: dict[str, Any] = {
    "vocab_size": VOCAB, "d_model": 16, "d_kv": 6, "num_heads": 3, "d_ff": 24, "num_layers": 2, "num_decoder_layers": 1,
    "relative_attention_num_buckets": 8, "relative_attention_max_distance": 12, "dropout_rate": 0.0,
    "decoder_start_token_id": 0,
}  # fmt: skip
LOCAL = {"encoder_attention_type": "local", "local_radius": 6}
TRANSIENT = {"encoder_attention_type": "transient-global", "local_radius": 6, "global_block_size": 4}
VERSION_1_1 = {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}


def tiny(kind=LongT5ForConditionalGeneration, own_head=False, **options):
    model = kind(kind.config_class(**{**SIZES, **options}))
    with torch.no_grad():
        # unscaled scores of first weights as large as these would be one-hot
        model.shared.weight *= 0.5
        for parameter in model.parameters():
            if parameter.dim() > 1 and parameter is not model.shared.weight:
                parameter *= 0.5
    if own_head:
        model.lm_head.weight = torch.nn.Parameter(torch.randn(VOCAB, SIZES["d_model"]) * 0.5)
        model.config.tie_word_embeddings = False
    return disturbed(model)


@pytest.mark.parametrize("options", [{}, VERSION_1_1, {"feed_forward_proj": "gated-silu"}])
@pytest.mark.parametrize("lengths", [[1], [7, 7], [20, 3, 11]])
def test_t5_has_the_same_logits_and_gradients(options, lengths):
    assert_same_seq2seq(t5, tiny(T5ForConditionalGeneration, **options), lengths, pad=0)


@pytest.mark.parametrize("feed_forward", ["gated-gelu", "gated-silu"])
@pytest.mark.parametrize("own_head", [True, False])
@pytest.mark.parametrize("lengths", [[1], [7, 7], [13, 14], [20, 3, 11], [40, 27]])
def test_mt5_never_scales_its_states(own_head, lengths, feed_forward):
    theirs = tiny(MT5ForConditionalGeneration, own_head, **{**VERSION_1_1, "feed_forward_proj": feed_forward})
    model = assert_same_seq2seq(t5, theirs, lengths, pad=0)
    assert (model.output is not None, model.output_scale) == (own_head, 1.0)


@pytest.mark.parametrize("own_head", [True, False])
@pytest.mark.parametrize("feed_forward", ["gated-gelu", "relu"])
@pytest.mark.parametrize("lengths", [[1], [7, 7], [13, 14], [20, 3, 11], [40, 27]])
def test_umt5_has_a_table_in_every_layer(own_head, feed_forward, lengths):
    theirs = tiny(UMT5ForConditionalGeneration, own_head, num_decoder_layers=2, feed_forward_proj=feed_forward)
    model = assert_same_seq2seq(t5, theirs, lengths, pad=0)
    assert len(model.decoder.bias.weight) == len(model.encoder.biases[0].weight) == 2 * 8
    assert (model.output is not None) == own_head  # its scale, which transformers changed, is in the logits


@pytest.mark.parametrize("kind", [T5ForConditionalGeneration, LongT5ForConditionalGeneration])
def test_an_output_layer_of_its_own_is_read(kind):
    model = assert_same_seq2seq(t5, tiny(kind, own_head=True, **VERSION_1_1), [9, 4], pad=0)
    assert model.output is not None
    assert model.output_scale == 1.0


@pytest.mark.parametrize("lengths", [[1], [6], [7], [8, 1], [13, 6], [14, 7], [15], [21, 20], [22, 14, 3], [40, 27]])
def test_local_has_the_same_logits_and_gradients_around_every_edge(lengths):
    model = assert_same_seq2seq(t5, tiny(**LOCAL), lengths, pad=0)
    assert model.encoder.pattern == Local(6)


@pytest.mark.parametrize(
    "lengths", [[1], [3], [4], [5], [7, 7], [8, 3], [9, 4, 1], [14, 5], [15, 7], [21, 16], [22, 8, 3], [43, 27]]
)
def test_tglobal_has_the_same_logits_and_gradients_around_every_edge(lengths):
    model = assert_same_seq2seq(t5, tiny(**TRANSIENT), lengths, pad=0)
    assert model.encoder.pattern == TGlobal(6, 4)


@pytest.mark.parametrize("lengths", [[15], [16, 15], [17], [127], [128], [129, 127], [260, 40]])
def test_tglobal_of_its_released_sizes_around_its_edges(lengths):
    options = {"local_radius": 127, "global_block_size": 16, "num_layers": 1}
    assert_same_seq2seq(t5, tiny(**{**TRANSIENT, **options, **VERSION_1_1}), lengths, pad=0)


@pytest.mark.parametrize("options", [{**LOCAL, **VERSION_1_1}, TRANSIENT, {**TRANSIENT, "feed_forward_proj": "relu"}])
def test_what_is_written_is_read_back(options):
    model = tiny(**options)
    config = t5.read_config(model.config.to_dict())
    values = t5.write_config(config, VOCAB, {"<pad>": 0, "<bos>": 2, "<eos>": 1})
    assert not differences(config, t5.read_config(LongT5Config(**values).to_dict()))
    again = LongT5ForConditionalGeneration(LongT5Config(**values)).eval()
    names = t5.name_map(config)
    again.load_state_dict(save_state(names, load_state(names, model.state_dict(), ignored=t5.IGNORED)), strict=False)
    ids, target = torch.arange(3, 14)[None], torch.arange(3, 7)[None]
    expected, found = (side(input_ids=ids, decoder_input_ids=target).logits for side in (model, again))
    assert torch.equal(found, expected)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"encoder_attention_type": "global"}, "encoder_attention_type is 'global'"),
        ({"feed_forward_proj": "gated-tanh"}, "feed_forward_proj is 'tanh'"),
        ({"feed_forward_proj": "split-gelu"}, "feed_forward_proj is 'split-gelu'"),
        ({"is_encoder_decoder": False}, "is_encoder_decoder is False"),
    ],
)
def test_what_ours_cannot_be_is_refused(options, message):
    with pytest.raises(FarspanError, match=message):
        t5.read_config({**LongT5Config(**SIZES).to_dict(), **options})


def longt5(pattern, tied):
    config = ModelConfig(
        width=16,
        heads=HeadsConfig(count=4, width=4, bias=False, scaled=False),
        feed_forward=FeedForwardConfig(width=24, activation="gelu_tanh", gated=True, bias=False),
        norm=NormConfig(placement="pre", kind="rms", eps=1e-6),
        embedding=EmbeddingConfig(norm=False),
        output=OutputConfig(tied=tied, scaled=tied),
        encoder=EncoderConfig(layers=2, positions=Buckets(8, 12), attention=pattern),
        decoder=DecoderConfig(layers=1, positions=Buckets(8, 12)),
        dropout=0.0,
        initialisation="t5",
    )
    return tiny_model(config)


@pytest.mark.parametrize("pattern", [Local(6), TGlobal(6, 4)])
@pytest.mark.parametrize("tied", [True, False])
def test_an_exported_folder_gives_the_same_logits_and_text_and_is_read_back(pattern, tied, tmp_path):
    model = longt5(pattern, tied)
    write_hugging_face(model, tmp_path / "longt5")
    again = read_hugging_face(tmp_path / "longt5")
    assert not differences(again.config, model.config, allowed=())
    assert all(torch.equal(again.state[name], model.state[name]) for name in model.state)
    theirs, report = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "longt5", output_loading_info=True)
    assert not any(report[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    ids, real = (part % 20 if part.dtype == torch.int64 else part for part in text([15, 4, 1]))
    ours, theirs = loaded(model), theirs.eval()
    with torch.no_grad():
        expected = theirs(input_ids=ids, attention_mask=real.long(), decoder_input_ids=ids[:, :5]).logits
        found = ours.logits(ours.decode(ids[:, :5], ours.encode(ids, real)))
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
    written = theirs.generate(ids, attention_mask=real.long(), max_new_tokens=8, do_sample=False, num_beams=1)
    assert torch.equal(written[:, 1:], greedy(ours, ids, real, start=2, end=2, pad=1, max_tokens=8))


def test_shards_of_weights_are_one_model(tmp_path):
    theirs = tiny(MT5ForConditionalGeneration, own_head=True, **VERSION_1_1)
    theirs.save_pretrained(tmp_path, max_shard_size="4KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 2
    state = read_hugging_face(tmp_path).state
    assert torch.equal(state["output.weight"], theirs.lm_head.weight)
    assert sum(x.numel() for x in state.values()) == sum(x.numel() for x in theirs.parameters())


@pytest.mark.parametrize("own_head", [True, False])
def test_a_folder_whose_configuration_denies_its_output_layer_is_read_by_its_weights(own_head, tmp_path):
    theirs = tiny(own_head=own_head, **TRANSIENT, **VERSION_1_1)
    theirs.config.tie_word_embeddings = True
    theirs.save_pretrained(tmp_path)
    model = read_hugging_face(tmp_path)
    assert model.config.output == OutputConfig(tied=not own_head, scaled=False)
    if own_head:
        assert torch.equal(model.state["output.weight"], theirs.lm_head.weight)
