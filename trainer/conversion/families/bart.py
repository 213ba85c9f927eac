"""BART (arXiv:1910.13461) and mBART (arXiv:2001.08210) as stored by Hugging Face."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainer.conversion.names import Modules, Tensors, expand, read_activation, require, token_ids, write_activation
from trainer.model.config import DecoderConfig, EncoderConfig, ModelConfig
from trainer.model.layers.heads import HeadsConfig
from trainer.model.layers.sublayers import EmbeddingConfig, FeedForwardConfig, NormConfig
from trainer.model.patterns.full import Full
from trainer.model.positions import Learned

MODEL_TYPES = ("bart", "mbart")
PATTERNS = ("full",)
IGNORED = ("final_logits_bias", "lm_head.weight", "*embed_tokens.weight")
_UNUSED_POSITIONS = 2
_SAME_NAME = ("dropout", "attention_dropout", "activation_dropout", "init_std")


def read_config(values: Mapping[str, Any]) -> ModelConfig:
    return ModelConfig(
        **read_sizes(values),
        heads=HeadsConfig(count=values["encoder_attention_heads"]),
        norm=NormConfig(placement="pre" if values["model_type"] == "mbart" else "post"),
        embedding=EmbeddingConfig(scaled=values["scale_embedding"]),
        encoder=EncoderConfig(
            layers=values["encoder_layers"], positions=Learned(values["max_position_embeddings"]), attention=Full()
        ),
        decoder=DecoderConfig(layers=values["decoder_layers"], positions=Learned(values["max_position_embeddings"])),
    )


def read_sizes(values: Mapping[str, Any]) -> dict[str, Any]:
    """Read what BART, PEGASUS and LED have in common: sizes, activation and dropout, as fields of ``ModelConfig``."""
    heads, inner = values["encoder_attention_heads"], values["encoder_ffn_dim"]
    require(values, decoder_attention_heads=heads, decoder_ffn_dim=inner, tie_word_embeddings=True)
    return {
        "width": values["d_model"],
        "feed_forward": FeedForwardConfig(width=inner, activation=read_activation(values, "activation_function")),
        **{name: values[name] for name in _SAME_NAME},
    }


def name_map(config: ModelConfig) -> dict[str, Tensors]:
    norms: Modules = {}
    names = {"tokens.weight": Tensors(("model.shared.weight",))}
    for side in ("encoder", "decoder"):
        positions = Tensors((f"model.{side}.embed_positions.weight",), skip_rows=_UNUSED_POSITIONS)
        names[f"{side}.embedded.positions.weight"] = positions
        norms[f"{side}.embedded.norm"] = f"model.{side}.layernorm_embedding"
        if config.norm.placement == "pre":
            norms[f"{side}.norm"] = f"model.{side}.layer_norm"
    return names | expand(norms | layer_modules(config))


def write_config(config: ModelConfig, vocab_size: int, special: Mapping[str, int]) -> dict[str, Any]:
    name = "MBart" if config.norm.placement == "pre" else "Bart"
    return {
        **write_sizes(config, vocab_size, special),
        "architectures": [f"{name}ForConditionalGeneration"],
        "model_type": name.lower(),
        "max_position_embeddings": config.encoder.positions.limit,
        "scale_embedding": config.embedding.scaled,
    }


def write_sizes(config: ModelConfig, vocab_size: int, special: Mapping[str, int]) -> dict[str, Any]:
    """Make the fields of ``config.json`` that BART, PEGASUS and LED have in common."""
    assert config.decoder
    return {
        "vocab_size": vocab_size,
        "d_model": config.width,
        "encoder_layers": config.encoder.layers,
        "decoder_layers": config.decoder.layers,
        "encoder_attention_heads": config.heads.count,
        "decoder_attention_heads": config.heads.count,
        "encoder_ffn_dim": config.feed_forward.width,
        "decoder_ffn_dim": config.feed_forward.width,
        "activation_function": write_activation(config.feed_forward.activation),
        "tie_word_embeddings": config.output.tied,
        **{name: getattr(config, name) for name in _SAME_NAME},
        "is_encoder_decoder": True,
        **token_ids(special),
    }


def layer_modules(config: ModelConfig, root: str = "model") -> Modules:
    """Map the module names of all layers to stored names; PEGASUS uses the same ones, and LED with another ``root``."""
    assert config.decoder
    modules: Modules = {}
    for side, layers in (("encoder", config.encoder.layers), ("decoder", config.decoder.layers)):
        for ours in (f"{side}.layers.{layer}" for layer in range(layers)):
            theirs = f"{root}.{ours}"
            modules |= {
                f"{ours}.attention.qkv": tuple(f"{theirs}.self_attn.{part}_proj" for part in "qkv"),
                f"{ours}.attention.out": f"{theirs}.self_attn.out_proj",
                f"{ours}.attention_residual.norm": f"{theirs}.self_attn_layer_norm",
                f"{ours}.feed_forward.up": f"{theirs}.fc1",
                f"{ours}.feed_forward.down": f"{theirs}.fc2",
                f"{ours}.feed_forward_residual.norm": f"{theirs}.final_layer_norm",
            }
            if side == "decoder":
                modules |= {
                    f"{ours}.cross_attention.q": f"{theirs}.encoder_attn.q_proj",
                    f"{ours}.cross_attention.kv": (f"{theirs}.encoder_attn.k_proj", f"{theirs}.encoder_attn.v_proj"),
                    f"{ours}.cross_attention.out": f"{theirs}.encoder_attn.out_proj",
                    f"{ours}.cross_attention_residual.norm": f"{theirs}.encoder_attn_layer_norm",
                }
    return modules
