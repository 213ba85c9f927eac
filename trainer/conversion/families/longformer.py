"""Longformer and LED (arXiv:2004.05150) as stored by Hugging Face."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from trainer.conversion.families.bart import layer_modules
from trainer.conversion.families.bert import encoder_names, read_encoder
from trainer.conversion.names import Tensors, expand, read_activation, require, token_ids, write_activation
from trainer.model.config import DecoderConfig, EncoderConfig, ModelConfig
from trainer.model.layers.heads import HeadsConfig
from trainer.model.layers.sublayers import FeedForwardConfig
from trainer.model.patterns.window import Window
from trainer.model.positions import Learned

MODEL_TYPES = ("longformer", "led")
PATTERNS = ("window",)
IGNORED = (
    "final_logits_bias",
    "lm_head.weight",
    "*embed_tokens.weight",
    "lm_head.decoder.*",
    "longformer.pooler.*",
    "*position_ids",
)
_UNUSED_POSITIONS = 2  # Longformer's positions begin after the padding id; LED's, unlike BART's, at the first row
_PARTS = ("query", "key", "value")


def read_config(values: Mapping[str, Any]) -> ModelConfig:
    """Convert a ``config.json`` to farspan's configuration."""
    return _read_led(values) if values["model_type"] == "led" else _read_longformer(values)


def name_map(config: ModelConfig) -> dict[str, Tensors]:
    """Map every parameter name of farspan to the stored tensors."""
    return _led_names(config, config.decoder) if config.decoder else _longformer_names(config)


def write_config(config: ModelConfig, vocab_size: int, special: Mapping[str, int]) -> dict[str, Any]:
    """Make LED's ``config.json``; the caller reads it back to detect fields that it cannot express."""
    assert config.decoder
    assert isinstance(config.encoder.attention, Window)
    return {
        "architectures": ["LEDForConditionalGeneration"],
        "model_type": "led",
        "vocab_size": vocab_size,
        "d_model": config.width,
        "encoder_layers": config.encoder.layers,
        "decoder_layers": config.decoder.layers,
        "encoder_attention_heads": config.heads.count,
        "decoder_attention_heads": config.heads.count,
        "encoder_ffn_dim": config.feed_forward.width,
        "decoder_ffn_dim": config.feed_forward.width,
        "activation_function": write_activation(config.feed_forward.activation),
        "attention_window": [config.encoder.attention.at(layer).half * 2 for layer in range(config.encoder.layers)],
        "max_encoder_position_embeddings": config.encoder.positions.limit,
        "max_decoder_position_embeddings": config.decoder.positions.limit,
        "tie_word_embeddings": config.output.tied,
        "dropout": config.dropout,
        "attention_dropout": config.attention_dropout,
        "activation_dropout": config.activation_dropout,
        "init_std": config.init_std,
        "is_encoder_decoder": True,
        **token_ids(special),
    }


def _read_longformer(values: Mapping[str, Any]) -> ModelConfig:
    require(values, pad_token_id=_UNUSED_POSITIONS - 1)
    config = read_encoder(values, values["max_position_embeddings"] - _UNUSED_POSITIONS)
    return replace(config, encoder=replace(config.encoder, attention=_window(values["attention_window"])))


def _read_led(values: Mapping[str, Any]) -> ModelConfig:
    heads, inner = values["encoder_attention_heads"], values["encoder_ffn_dim"]
    require(values, decoder_attention_heads=heads, decoder_ffn_dim=inner, tie_word_embeddings=True)
    return ModelConfig(
        width=values["d_model"],
        heads=HeadsConfig(count=heads),
        feed_forward=FeedForwardConfig(width=inner, activation=read_activation(values, "activation_function")),
        encoder=EncoderConfig(
            layers=values["encoder_layers"],
            positions=Learned(values["max_encoder_position_embeddings"]),
            attention=_window(values["attention_window"]),
        ),
        decoder=DecoderConfig(
            layers=values["decoder_layers"], positions=Learned(values["max_decoder_position_embeddings"])
        ),
        dropout=values["dropout"],
        attention_dropout=values["attention_dropout"],
        activation_dropout=values["activation_dropout"],
        init_std=values["init_std"],
    )


def _window(sizes: int | list[int]) -> Window:
    """Make the pattern, with a single size if all layers have the same, so that equal models compare equal."""
    if isinstance(sizes, int):
        return Window(sizes)
    return Window(sizes[0] if len(set(sizes)) == 1 else tuple(sizes))


def _longformer_names(config: ModelConfig) -> dict[str, Tensors]:
    modules: dict[str, str | tuple[str, ...]] = {"head.0": "lm_head.dense", "head.2": "lm_head.layer_norm"}
    for layer in range(config.encoder.layers):
        theirs = f"longformer.encoder.layer.{layer}.attention.self"
        modules[f"encoder.layers.{layer}.attention.global_qkv"] = tuple(f"{theirs}.{part}_global" for part in _PARTS)
    return {
        **encoder_names("longformer", config.encoder.layers, _UNUSED_POSITIONS),
        **expand(modules, ("weight", "bias")),
        "bias": Tensors(("lm_head.bias",)),
    }


def _led_names(config: ModelConfig, decoder: DecoderConfig) -> dict[str, Tensors]:
    modules: dict[str, str | tuple[str, ...]] = {}
    names = {"tokens.weight": Tensors(("led.shared.weight",))}
    for side, layers in (("encoder", config.encoder.layers), ("decoder", decoder.layers)):
        names[f"{side}.embedded.positions.weight"] = Tensors((f"led.{side}.embed_positions.weight",))
        modules[f"{side}.embedded.norm"] = f"led.{side}.layernorm_embedding"
        for layer in range(layers):
            modules |= layer_modules(f"{side}.layers.{layer}", side, "led")
    for layer in range(config.encoder.layers):
        ours, theirs = f"encoder.layers.{layer}.attention", f"led.encoder.layers.{layer}.self_attn"
        inside = f"{theirs}.longformer_self_attn"
        modules |= {
            f"{ours}.qkv": tuple(f"{inside}.{part}" for part in _PARTS),
            f"{ours}.global_qkv": tuple(f"{inside}.{part}_global" for part in _PARTS),
            f"{ours}.out": f"{theirs}.output",
        }
    return names | expand(modules, ("weight", "bias"))
