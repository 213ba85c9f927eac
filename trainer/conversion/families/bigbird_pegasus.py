"""BigBird-PEGASUS (arXiv:2007.14062, section 4) as stored by Hugging Face."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainer.conversion.families import bart
from trainer.conversion.families.bart import layer_modules, read_sizes, write_sizes
from trainer.conversion.names import Tensors, expand, require
from trainer.model.config import DecoderConfig, EncoderConfig, ModelConfig
from trainer.model.layers.heads import HeadsConfig
from trainer.model.layers.sublayers import EmbeddingConfig, NormConfig
from trainer.model.patterns import BigBird, Full
from trainer.model.positions import Learned

MODEL_TYPES = ("bigbird_pegasus",)
PATTERNS = ("bigbird",)
IGNORED = bart.IGNORED


def read_config(values: Mapping[str, Any]) -> ModelConfig:
    """Convert a ``config.json`` to farspan's configuration, with the attention of the class outside of training."""
    require(values, encoder_layerdrop=0.0, decoder_layerdrop=0.0)
    positions = Learned(values["max_position_embeddings"])
    sparse = values["attention_type"] == "block_sparse"
    return ModelConfig(
        **read_sizes(values),
        heads=HeadsConfig(count=values["encoder_attention_heads"], bias=values["use_bias"]),
        norm=NormConfig(placement="pre"),
        embedding=EmbeddingConfig(scaled=values["scale_embedding"], norm=False),
        encoder=EncoderConfig(
            layers=values["encoder_layers"],
            positions=positions,
            attention=BigBird(values["block_size"], values["num_random_blocks"], "first") if sparse else Full(),
        ),
        decoder=DecoderConfig(layers=values["decoder_layers"], positions=positions),
    )


def name_map(config: ModelConfig) -> dict[str, Tensors]:
    modules = layer_modules(config)
    names = {"tokens.weight": Tensors(("model.shared.weight",))}
    for side in ("encoder", "decoder"):
        names[f"{side}.embedded.positions.weight"] = Tensors((f"model.{side}.embed_positions.weight",))
        modules[f"{side}.norm"] = f"model.{side}.layernorm_embedding"  # applied last
    for layer in range(config.encoder.layers):
        ours, theirs = f"encoder.layers.{layer}.attention", f"model.encoder.layers.{layer}.self_attn"
        modules[f"{ours}.qkv"] = tuple(f"{theirs}.self.{part}" for part in ("query", "key", "value"))
        modules[f"{ours}.out"] = f"{theirs}.output"
    return names | expand(modules, config.heads.bias)


def write_config(config: ModelConfig, vocab_size: int, special: Mapping[str, int]) -> dict[str, Any]:
    assert isinstance(config.encoder.attention, BigBird)
    return {
        **write_sizes(config, vocab_size, special),
        "architectures": ["BigBirdPegasusForConditionalGeneration"],
        "model_type": "bigbird_pegasus",
        "attention_type": "block_sparse",
        "block_size": config.encoder.attention.size,
        "num_random_blocks": config.encoder.attention.random,
        "max_position_embeddings": config.encoder.positions.limit,
        "scale_embedding": config.embedding.scaled,
        "use_bias": config.heads.bias,
    }
