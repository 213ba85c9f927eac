"""ModernBERT (arXiv:2412.13663) and the encoders of Ettin (arXiv:2507.11412) as stored by Hugging Face."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from corpora.errors import FarspanError
from objectives.api.special_tokens import BEGIN, END, PAD
from trainer.conversion.families.gemma3 import read_layers, read_rotary, write_layers
from trainer.conversion.names import Tensors, read_activation, require
from trainer.model.config import EncoderConfig, ModelConfig
from trainer.model.layers.heads import HeadsConfig
from trainer.model.layers.sublayers import EmbeddingConfig, FeedForwardConfig, NormConfig
from trainer.model.patterns.layered import Layered

MODEL_TYPES = ("modernbert",)
PATTERNS: tuple[str, ...] = ()
ENCODERS = ("layered",)
IGNORED = ("decoder.weight",)
_NO_BIASES = dict.fromkeys(("attention_bias", "mlp_bias", "norm_bias", "classifier_bias"), False)


def read_config(values: Mapping[str, Any]) -> ModelConfig:
    require(
        values,
        **_NO_BIASES,
        decoder_bias=True,
        tie_word_embeddings=True,
        classifier_activation="gelu",
        embedding_dropout=0.0,  # ours also drops every sublayer's output
        attention_dropout=0.0,
    )
    reach = values["local_attention"] // 2
    return ModelConfig(
        width=values["hidden_size"],
        heads=HeadsConfig(count=values["num_attention_heads"], bias=False),
        feed_forward=FeedForwardConfig(
            width=values["intermediate_size"],
            activation=read_activation(values, "hidden_activation"),
            gated=True,
            bias=False,
        ),
        norm=NormConfig(placement="pre", eps=values["norm_eps"], bias=False, first=False),
        embedding=EmbeddingConfig(norm=True),
        encoder=EncoderConfig(
            layers=values["num_hidden_layers"],
            positions=read_rotary(values["rope_parameters"]),
            attention=read_layers(values["layer_types"], reach, reach, False),
        ),
        dropout=0.0,
        activation_dropout=values["mlp_dropout"],
        init_std=values["initializer_range"],
    )


def name_map(config: ModelConfig) -> dict[str, Tensors]:
    names = {
        "tokens.weight": Tensors(("model.embeddings.tok_embeddings.weight",)),
        "encoder.embedded.norm.weight": Tensors(("model.embeddings.norm.weight",)),
        "encoder.norm.weight": Tensors(("model.final_norm.weight",)),
        "head.0.weight": Tensors(("head.dense.weight",)),
        "head.2.weight": Tensors(("head.norm.weight",)),
        "bias": Tensors(("decoder.bias",)),
    }
    modules = {
        "attention.qkv": "attn.Wqkv",
        "attention.out": "attn.Wo",
        "attention_residual.norm": "attn_norm",
        "feed_forward_residual.norm": "mlp_norm",
        "feed_forward.down": "mlp.Wo",
    }
    for layer in range(config.encoder.layers):
        ours, theirs = f"encoder.layers.{layer}", f"model.layers.{layer}"
        for name, part in modules.items():
            if layer or part != "attn_norm":
                names[f"{ours}.{name}.weight"] = Tensors((f"{theirs}.{part}.weight",))
        for number, name in enumerate(("up", "gate")):
            names[f"{ours}.feed_forward.{name}.weight"] = Tensors((f"{theirs}.mlp.Wi.weight",), part=(number, 2))
    return names


def write_config(config: ModelConfig, vocab_size: int, special: Mapping[str, int]) -> dict[str, Any]:
    pattern = config.encoder.attention
    if not isinstance(pattern, Layered) or pattern.left != pattern.right:
        raise FarspanError(
            f"model.encoder.attention is {pattern}; ModernBERT's windows reach equally far to the left and to the "
            "right; keep the model in farspan's format"
        )
    return {
        "architectures": ["ModernBertForMaskedLM"],
        "model_type": "modernbert",
        "vocab_size": vocab_size,
        "hidden_size": config.width,
        "intermediate_size": config.feed_forward.width,
        "num_hidden_layers": config.encoder.layers,
        "num_attention_heads": config.heads.count,
        "hidden_activation": {"gelu_tanh": "gelu_pytorch_tanh"}.get(
            config.feed_forward.activation, config.feed_forward.activation
        ),
        "local_attention": 2 * pattern.left,
        "norm_eps": config.norm.eps,
        "mlp_dropout": config.activation_dropout,
        "initializer_range": config.init_std,
        "tie_word_embeddings": True,
        "pad_token_id": special[PAD],
        **dict.fromkeys(("bos_token_id", "cls_token_id"), special.get(BEGIN)),
        **dict.fromkeys(("eos_token_id", "sep_token_id"), special.get(END)),
        **_NO_BIASES,
        **write_layers(pattern, config.encoder.layers, config.encoder.positions),
    }
