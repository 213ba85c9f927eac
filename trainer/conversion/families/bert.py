"""BERT (arXiv:1810.04805) as stored by Hugging Face, with its masked-language-model head."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainer.conversion.names import Modules, Tensors, expand, read_activation, require
from trainer.model.config import EncoderConfig, ModelConfig
from trainer.model.layers.heads import HeadsConfig
from trainer.model.layers.sublayers import FeedForwardConfig, NormConfig
from trainer.model.patterns.full import Full
from trainer.model.positions import Learned

MODEL_TYPES = ("bert",)
PATTERNS: tuple[str, ...] = ()
IGNORED = ("bert.pooler.*", "cls.seq_relationship.*", "cls.predictions.decoder.*", "*position_ids")


def read_config(values: Mapping[str, Any]) -> ModelConfig:
    return read_encoder(values, values["max_position_embeddings"])


def read_encoder(values: Mapping[str, Any], positions: int) -> ModelConfig:
    """Convert the ``config.json`` of a model with BERT's layers to farspan's configuration."""
    require(
        values,
        hidden_act="gelu",  # also the head's
        tie_word_embeddings=True,
        is_decoder=False,
        add_cross_attention=False,
        position_embedding_type="absolute",
    )
    return ModelConfig(
        width=values["hidden_size"],
        heads=HeadsConfig(count=values["num_attention_heads"]),
        feed_forward=FeedForwardConfig(
            width=values["intermediate_size"], activation=read_activation(values, "hidden_act")
        ),
        norm=NormConfig(eps=values["layer_norm_eps"]),
        encoder=EncoderConfig(layers=values["num_hidden_layers"], positions=Learned(positions), attention=Full()),
        dropout=values["hidden_dropout_prob"],
        attention_dropout=values["attention_probs_dropout_prob"],
        init_std=values["initializer_range"],
    )


def name_map(config: ModelConfig) -> dict[str, Tensors]:
    head: Modules = {"head.0": "cls.predictions.transform.dense", "head.2": "cls.predictions.transform.LayerNorm"}
    return {
        **encoder_names("bert", config.encoder.layers),
        **expand(head),
        "bias": Tensors(("cls.predictions.bias",)),
    }


def encoder_names(prefix: str, layers: int, skip_rows: int = 0) -> dict[str, Tensors]:
    """Map farspan's parameter names of token table and layers to the stored tensors."""
    embeddings = f"{prefix}.embeddings"
    modules: Modules = {"encoder.embedded.norm": f"{embeddings}.LayerNorm"}
    for layer in range(layers):
        ours, theirs = f"encoder.layers.{layer}", f"{prefix}.encoder.layer.{layer}"
        modules |= {
            f"{ours}.attention.qkv": tuple(f"{theirs}.attention.self.{part}" for part in ("query", "key", "value")),
            f"{ours}.attention.out": f"{theirs}.attention.output.dense",
            f"{ours}.attention_residual.norm": f"{theirs}.attention.output.LayerNorm",
            f"{ours}.feed_forward.up": f"{theirs}.intermediate.dense",
            f"{ours}.feed_forward.down": f"{theirs}.output.dense",
            f"{ours}.feed_forward_residual.norm": f"{theirs}.output.LayerNorm",
        }
    return {
        "tokens.weight": Tensors((f"{embeddings}.word_embeddings.weight",)),
        "encoder.embedded.positions.weight": Tensors(
            (f"{embeddings}.position_embeddings.weight",), skip_rows, f"{embeddings}.token_type_embeddings.weight"
        ),
        **expand(modules),
    }
