"""PEGASUS (arXiv:1912.08777) and PEGASUS-X (arXiv:2208.04347) as stored by Hugging Face."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from corpora.errors import FarspanError
from trainer.conversion.families import bart
from trainer.conversion.families.bart import layer_modules, read_sizes, write_sizes
from trainer.conversion.names import Tensors, expand
from trainer.model.config import DecoderConfig, EncoderConfig, ModelConfig
from trainer.model.layers.heads import HeadsConfig
from trainer.model.layers.sublayers import EmbeddingConfig, NormConfig
from trainer.model.patterns import Full, Staggered
from trainer.model.positions import Sinusoidal

MODEL_TYPES = ("pegasus", "pegasus_x")
PATTERNS = ("staggered",)
IGNORED = (*bart.IGNORED, "*embed_positions.weight")


def read_config(values: Mapping[str, Any]) -> ModelConfig:
    long = values["model_type"] == "pegasus_x"
    positions = Sinusoidal("pegasus_x" if long else "pegasus")
    return ModelConfig(
        **read_sizes(values),
        heads=HeadsConfig(count=values["encoder_attention_heads"], bias=not long),
        norm=NormConfig(placement="pre"),
        embedding=EmbeddingConfig(scaled=values["scale_embedding"], norm=False),
        encoder=EncoderConfig(
            layers=values["encoder_layers"],
            positions=positions,
            attention=Staggered(values["block_size"], values["num_global_tokens"], values["stagger_local_blocks"])
            if long
            else Full(),
        ),
        decoder=DecoderConfig(layers=values["decoder_layers"], positions=positions),
    )


def name_map(config: ModelConfig) -> dict[str, Tensors]:
    modules = layer_modules(config) | {f"{side}.norm": f"model.{side}.layer_norm" for side in ("encoder", "decoder")}
    names = {"tokens.weight": Tensors(("model.shared.weight",))}
    if config.encoder.attention.extra_tokens:
        names["encoder.extra"] = Tensors(("model.encoder.embed_global.weight",))
        for layer in range(config.encoder.layers):
            ours, theirs = f"encoder.layers.{layer}.attention_residual.norm", f"model.encoder.layers.{layer}"
            modules[f"{ours}.tokens"] = modules.pop(ours)
            modules[f"{ours}.extra"] = f"{theirs}.global_self_attn_layer_norm"
    return names | expand(modules, config.heads.bias)


def write_config(config: ModelConfig, vocab_size: int, special: Mapping[str, int]) -> dict[str, Any]:
    """Make PEGASUS-X's ``config.json``; the caller reads it back to detect fields that it cannot express."""
    pattern = config.encoder.attention
    if not isinstance(pattern, Staggered):
        raise FarspanError(
            f"model.encoder.attention.pattern is {pattern.pattern!r}; PEGASUS-X's is 'staggered': choose another family"
        )
    return {
        **write_sizes(config, vocab_size, special),
        "architectures": ["PegasusXForConditionalGeneration"],
        "model_type": "pegasus_x",
        "block_size": pattern.size,
        "num_global_tokens": pattern.global_tokens,
        "stagger_local_blocks": pattern.staggered,
        "scale_embedding": config.embedding.scaled,
    }
