"""BART-LS (arXiv:2209.10052) as a folder of Hugging Face with a modelling file of farspan's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from trainer.conversion.families import bart
from trainer.conversion.names import Modules, Tensors, expand
from trainer.model.config import ModelConfig
from trainer.model.layers.pooled import Pooling
from trainer.model.patterns import Block, Overlap
from trainer.model.positions import Learned

MODEL_TYPES = ("bart_ls",)
PATTERNS = ("block", "overlap")
IGNORED = bart.IGNORED


def read_config(values: Mapping[str, Any]) -> ModelConfig:
    config, size, layers = bart.read_config(values), values["block_size"], values["pooling_layers"]
    kernel, stride = values["pooling_kernel"], values["pooling_stride"]
    encoder = replace(
        config.encoder,
        positions=Learned(values["max_encoder_position_embeddings"]),
        attention=Overlap(size) if values["block_overlap"] else Block(size),
        pooling=Pooling(layers, kernel, stride, kernel // 2) if layers else None,
    )
    return replace(config, encoder=encoder)


def name_map(config: ModelConfig) -> dict[str, Tensors]:
    modules: Modules = {}
    for layer in filter(config.encoder.has_pooling, range(config.encoder.layers)):
        ours, theirs = f"encoder.layers.{layer}.pooling", f"model.encoder.layers.{layer}.pooled_attn"
        modules |= {
            f"{ours}.q": f"{theirs}.q_proj",
            f"{ours}.kv": (f"{theirs}.k_proj", f"{theirs}.v_proj"),
            f"{ours}.out": f"{theirs}.out_proj",
        }
    return bart.name_map(config) | expand(modules)


def write_config(config: ModelConfig, vocab_size: int, special: Mapping[str, int]) -> dict[str, Any]:
    assert config.decoder
    assert isinstance(config.encoder.attention, Block | Overlap)
    size, pooling = config.encoder.attention.size, config.encoder.pooling
    return {
        **bart.write_config(config, vocab_size, special),
        "architectures": ["BartLSForConditionalGeneration"],
        "model_type": "bart_ls",
        "auto_map": {
            "AutoConfig": "modeling_bart_ls.BartLSConfig",
            "AutoModelForSeq2SeqLM": "modeling_bart_ls.BartLSForConditionalGeneration",
        },
        "max_encoder_position_embeddings": config.encoder.positions.limit,
        "max_position_embeddings": config.decoder.positions.limit,
        "block_size": size,
        "block_overlap": size // 2 if isinstance(config.encoder.attention, Overlap) else 0,
        "pooling_layers": pooling.layers if pooling else 0,
        **({"pooling_kernel": pooling.kernel, "pooling_stride": pooling.stride} if pooling else {}),
    }
