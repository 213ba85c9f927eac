"""Longformer and LED (arXiv:2004.05150) as stored by Hugging Face."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from trainer.conversion.families import bart
from trainer.conversion.families.bart import layer_modules, read_sizes, write_sizes
from trainer.conversion.families.bert import encoder_names, read_encoder
from trainer.conversion.names import Modules, Tensors, expand, require
from trainer.model.config import DecoderConfig, EncoderConfig, ModelConfig
from trainer.model.layers.heads import HeadsConfig
from trainer.model.patterns.window import Window
from trainer.model.positions import Learned

MODEL_TYPES = ("longformer", "led")
PATTERNS = ("window",)
IGNORED = (*bart.IGNORED, "lm_head.decoder.*", "longformer.pooler.*", "*position_ids")
_UNUSED_POSITIONS = 2  # Longformer's positions begin after the padding id; LED's, unlike BART's, at the first row
_PARTS = ("query", "key", "value")


def read_config(values: Mapping[str, Any]) -> ModelConfig:
    return _read_led(values) if values["model_type"] == "led" else _read_longformer(values)


def name_map(config: ModelConfig) -> dict[str, Tensors]:
    return _led_names(config) if config.decoder else _longformer_names(config)


def write_config(config: ModelConfig, vocab_size: int, special: Mapping[str, int]) -> dict[str, Any]:
    """Make LED's ``config.json``; the caller reads it back to detect fields that it cannot express."""
    assert config.decoder
    assert isinstance(config.encoder.attention, Window)
    return {
        **write_sizes(config, vocab_size, special),
        "architectures": ["LEDForConditionalGeneration"],
        "model_type": "led",
        "attention_window": [config.encoder.attention.at(layer).half * 2 for layer in range(config.encoder.layers)],
        "max_encoder_position_embeddings": config.encoder.positions.limit,
        "max_decoder_position_embeddings": config.decoder.positions.limit,
    }


def _read_longformer(values: Mapping[str, Any]) -> ModelConfig:
    require(values, pad_token_id=_UNUSED_POSITIONS - 1)
    config = read_encoder(values, values["max_position_embeddings"] - _UNUSED_POSITIONS)
    return replace(config, encoder=replace(config.encoder, attention=_window(values["attention_window"])))


def _read_led(values: Mapping[str, Any]) -> ModelConfig:
    return ModelConfig(
        **read_sizes(values),
        heads=HeadsConfig(count=values["encoder_attention_heads"]),
        encoder=EncoderConfig(
            layers=values["encoder_layers"],
            positions=Learned(values["max_encoder_position_embeddings"]),
            attention=_window(values["attention_window"]),
        ),
        decoder=DecoderConfig(
            layers=values["decoder_layers"], positions=Learned(values["max_decoder_position_embeddings"])
        ),
    )


def _window(sizes: int | list[int]) -> Window:
    """Make the pattern, with a single size if all layers have the same, so that equal models compare equal."""
    if isinstance(sizes, int):
        return Window(sizes)
    return Window(sizes[0] if len(set(sizes)) == 1 else tuple(sizes))


def _longformer_names(config: ModelConfig) -> dict[str, Tensors]:
    modules: Modules = {"head.0": "lm_head.dense", "head.2": "lm_head.layer_norm"}
    for layer in range(config.encoder.layers):
        theirs = f"longformer.encoder.layer.{layer}.attention.self"
        modules[f"encoder.layers.{layer}.attention.global_qkv"] = tuple(f"{theirs}.{part}_global" for part in _PARTS)
    return {
        **encoder_names("longformer", config.encoder.layers, _UNUSED_POSITIONS),
        **expand(modules),
        "bias": Tensors(("lm_head.bias",)),
    }


def _led_names(config: ModelConfig) -> dict[str, Tensors]:
    modules = layer_modules(config, "led")
    names = {"tokens.weight": Tensors(("led.shared.weight",))}
    for side in ("encoder", "decoder"):
        names[f"{side}.embedded.positions.weight"] = Tensors((f"led.{side}.embed_positions.weight",))
        modules[f"{side}.embedded.norm"] = f"led.{side}.layernorm_embedding"
    for layer in range(config.encoder.layers):
        ours, theirs = f"encoder.layers.{layer}.attention", f"led.encoder.layers.{layer}.self_attn"
        inside = f"{theirs}.longformer_self_attn"
        modules |= {
            f"{ours}.qkv": tuple(f"{inside}.{part}" for part in _PARTS),
            f"{ours}.global_qkv": tuple(f"{inside}.{part}_global" for part in _PARTS),
            f"{ours}.out": f"{theirs}.output",
        }
    return names | expand(modules)
