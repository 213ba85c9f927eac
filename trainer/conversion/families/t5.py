"""T5 (arXiv:1910.10683), T5 1.1, mT5 (arXiv:2010.11934), umT5 and LongT5 (arXiv:2112.07916) as stored by Hugging Face.

``tie_word_embeddings`` was False in T5 1.1, whose output layer is separate and takes unscaled states. Hugging Face's
configurations now always have True, with ``scale_decoder_outputs`` as a separate field, while the models still load a
separate output layer if the weights have one. Code that reads weights must therefore set the field by the weights. mT5
never scales its states.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from corpora.errors import FarspanError
from trainer.conversion.names import Tensors, read_activation, require, token_ids, write_activation
from trainer.model.config import DecoderConfig, EncoderConfig, ModelConfig, OutputConfig
from trainer.model.layers.heads import HeadsConfig
from trainer.model.layers.sublayers import EmbeddingConfig, FeedForwardConfig, NormConfig
from trainer.model.patterns import Full, Local, TGlobal
from trainer.model.positions import Buckets

MODEL_TYPES = ("t5", "mt5", "umt5", "longt5")
PATTERNS = ("local", "tglobal")
IGNORED = (
    "lm_head.weight",
    "*embed_tokens.weight",
    "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.*",
)
_ATTENTION = {"full": "SelfAttention", "local": "LocalSelfAttention", "tglobal": "TransientGlobalSelfAttention"}


def read_config(values: Mapping[str, Any]) -> ModelConfig:
    require(values, is_encoder_decoder=True)
    width, count, tied = values["d_model"], values["num_heads"], values["tie_word_embeddings"]
    positions = Buckets(
        values["relative_attention_num_buckets"],
        values["relative_attention_max_distance"],
        per_layer=values["model_type"] == "umt5",
    )
    dropout = values["dropout_rate"]
    scaled = values["model_type"] != "mt5" and values.get("scale_decoder_outputs", tied)
    return ModelConfig(
        width=width,
        heads=HeadsConfig(
            count=count,
            width=None if values["d_kv"] * count == width else values["d_kv"],
            bias=False,
            scaled=False,
        ),
        feed_forward=_read_feed_forward(values),
        norm=NormConfig(placement="pre", kind="rms", eps=values["layer_norm_epsilon"]),
        embedding=EmbeddingConfig(norm=False),
        output=OutputConfig(tied=tied, scaled=scaled),
        encoder=EncoderConfig(layers=values["num_layers"], positions=positions, attention=_read_pattern(values)),
        decoder=DecoderConfig(layers=values["num_decoder_layers"], positions=positions),
        dropout=dropout,
        attention_dropout=dropout,
        activation_dropout=dropout,
        initialisation="t5",
    )


def name_map(config: ModelConfig) -> dict[str, Tensors]:
    assert config.decoder
    attention = _ATTENTION[config.encoder.attention.pattern]
    first = f"encoder.block.0.layer.0.{attention}"
    names: dict[str, tuple[str, ...]] = {
        "tokens": ("shared",),
        "encoder.biases.0": _tables("encoder", config.encoder, attention),
        "decoder.bias": _tables("decoder", config.decoder, "SelfAttention"),
        "encoder.norm": ("encoder.final_layer_norm",),
        "decoder.norm": ("decoder.final_layer_norm",),
    }
    if not config.output.tied:
        names["output"] = ("lm_head",)
    for layer in range(config.encoder.layers):
        ours, theirs = f"encoder.layers.{layer}", f"encoder.block.{layer}.layer"
        names |= _self_attention(ours, f"{theirs}.0", attention) | _feed_forward(ours, f"{theirs}.1", config)
        if isinstance(config.encoder.attention, TGlobal):
            names[f"{ours}.attention.side_norm"] = (f"{theirs}.0.{attention}.global_input_layer_norm",)
    if isinstance(config.encoder.attention, TGlobal):
        names["encoder.biases.1"] = (f"{first}.global_relative_attention_bias",)
    for layer in range(config.decoder.layers):
        ours, theirs = f"decoder.layers.{layer}", f"decoder.block.{layer}.layer"
        names |= _self_attention(ours, f"{theirs}.0", "SelfAttention") | _feed_forward(ours, f"{theirs}.2", config)
        cross = f"{theirs}.1.EncDecAttention"
        names |= {
            f"{ours}.cross_attention.q": (f"{cross}.q",),
            f"{ours}.cross_attention.kv": (f"{cross}.k", f"{cross}.v"),
            f"{ours}.cross_attention.out": (f"{cross}.o",),
            f"{ours}.cross_attention_residual.norm": (f"{theirs}.1.layer_norm",),
        }
    return {f"{ours}.weight": Tensors(tuple(f"{name}.weight" for name in theirs)) for ours, theirs in names.items()}


def write_config(config: ModelConfig, vocab_size: int, special: Mapping[str, int]) -> dict[str, Any]:
    """Make LongT5's ``config.json``; the caller reads it back to detect fields that it cannot express."""
    assert config.decoder
    pattern, positions, inner = config.encoder.attention, config.encoder.positions, config.feed_forward
    if not isinstance(pattern, Local | TGlobal):
        raise FarspanError(
            f"model.encoder.attention.pattern is {pattern.pattern!r}; LongT5's are 'local' and 'tglobal': choose "
            "another family"
        )
    if not isinstance(positions, Buckets):
        raise FarspanError(
            f"model.encoder.positions.scheme is {positions.scheme!r}; LongT5's is 'buckets': keep the "
            "model in farspan's format"
        )
    activation = write_activation(inner.activation)
    if inner.gated:
        activation = "gated-gelu" if activation == "gelu_new" else f"gated-{activation}"
    return {
        "architectures": ["LongT5ForConditionalGeneration"],
        "model_type": "longt5",
        "vocab_size": vocab_size,
        "d_model": config.width,
        "d_kv": config.head_width,
        "d_ff": inner.width,
        "num_layers": config.encoder.layers,
        "num_decoder_layers": config.decoder.layers,
        "num_heads": config.heads.count,
        "feed_forward_proj": activation,
        "encoder_attention_type": "local" if isinstance(pattern, Local) else "transient-global",
        "local_radius": pattern.radius,
        "global_block_size": pattern.block if isinstance(pattern, TGlobal) else 16,
        "relative_attention_num_buckets": positions.count,
        "relative_attention_max_distance": positions.distance,
        "layer_norm_epsilon": config.norm.eps,
        "tie_word_embeddings": config.output.tied,
        "scale_decoder_outputs": config.output.scaled,
        "dropout_rate": config.dropout,
        "is_encoder_decoder": True,
        **token_ids(special),
    }


def _read_feed_forward(values: Mapping[str, Any]) -> FeedForwardConfig:
    gated, _, name = values["feed_forward_proj"].rpartition("-")
    if gated not in ("", "gated"):
        raise FarspanError(
            f"config.json: feed_forward_proj is {values['feed_forward_proj']!r}; known are an activation and 'gated-' "
            "before one; convert another model"
        )
    # "gated-gelu" has always meant the approximation that version 1.1 was trained with
    name = "gelu_new" if gated and name == "gelu" else name
    activation = read_activation({"feed_forward_proj": name}, "feed_forward_proj")
    return FeedForwardConfig(width=values["d_ff"], activation=activation, gated=bool(gated), bias=False)


def _read_pattern(values: Mapping[str, Any]) -> Full | Local | TGlobal:
    if values["model_type"] != "longt5":
        return Full()
    kind = values["encoder_attention_type"]
    if kind == "local":
        return Local(values["local_radius"])
    if kind == "transient-global":
        return TGlobal(values["local_radius"], values["global_block_size"])
    raise FarspanError(
        f"config.json: encoder_attention_type is {kind!r}; known are 'local' and 'transient-global'; convert another "
        "model"
    )


def _tables(side: str, stack: EncoderConfig | DecoderConfig, attention: str) -> tuple[str, ...]:
    """Return the tables of relative positions: the first layer's, or that of every layer."""
    layers = stack.layers if isinstance(stack.positions, Buckets) and stack.positions.per_layer else 1
    return tuple(f"{side}.block.{layer}.layer.0.{attention}.relative_attention_bias" for layer in range(layers))


def _self_attention(ours: str, theirs: str, name: str) -> dict[str, tuple[str, ...]]:
    return {
        f"{ours}.attention.qkv": tuple(f"{theirs}.{name}.{part}" for part in "qkv"),
        f"{ours}.attention.out": (f"{theirs}.{name}.o",),
        f"{ours}.attention_residual.norm": (f"{theirs}.layer_norm",),
    }


def _feed_forward(ours: str, theirs: str, config: ModelConfig) -> dict[str, tuple[str, ...]]:
    inner = f"{theirs}.DenseReluDense"
    names: dict[str, tuple[str, ...]] = {
        f"{ours}.feed_forward.up": (f"{inner}.wi_0" if config.feed_forward.gated else f"{inner}.wi",),
        f"{ours}.feed_forward.down": (f"{inner}.wo",),
        f"{ours}.feed_forward_residual.norm": (f"{theirs}.layer_norm",),
    }
    if config.feed_forward.gated:
        names[f"{ours}.feed_forward.gate"] = (f"{inner}.wi_1",)
    return names
