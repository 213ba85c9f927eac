"""Gemma 3 (arXiv:2503.19786) as stored by Hugging Face: a decoder, which is read as the encoder-decoder made from it.

Both stacks have the decoder's weights, as in T5Gemma 2 before its training (arXiv:2512.14856): the encoder attends in
both directions, and the decoder's self-attention also attends to the encoder's states, without weights of its own for
them. Where the source is masked, the logits are Gemma's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from corpora.errors import FarspanError
from trainer.conversion.names import Tensors, read_activation, require
from trainer.model.config import DecoderConfig, EncoderConfig, ModelConfig
from trainer.model.layers.heads import HeadsConfig
from trainer.model.layers.sublayers import EmbeddingConfig, FeedForwardConfig, NormConfig
from trainer.model.patterns.layered import Layered
from trainer.model.positions import Rotary

MODEL_TYPES = ("gemma3_text", "gemma3")
PATTERNS: tuple[str, ...] = ()
IGNORED = ("lm_head.weight",)
RENAMED = (
    (r"^(model\.)?(vision_tower|multi_modal_projector)\.(vision_model\.)?", r"model.encoder.\2."),
    (r"^(language_model\.model|model\.language_model)\.", "model."),
    (r"^language_model\.lm_head", "lm_head"),
)
CARRIED = ("model.encoder.vision_tower.*", "model.encoder.multi_modal_projector.*")
_NORMS = ("input_layernorm", "post_attention_layernorm")


def complete(values: Mapping[str, Any]) -> dict[str, Any]:
    """Add the fields of the text model, and the begin token as the decoder's first."""
    whole = {**values, **values.get("text_config", {})} | {"model_type": values["model_type"]}
    end = whole["eos_token_id"]
    ids = {"decoder_start_token_id": whole["bos_token_id"], "eos_token_id": end[0] if isinstance(end, list) else end}
    return whole | ids


def carried_fields(values: Mapping[str, Any]) -> dict[str, Any]:
    names = ("vision_config", "mm_tokens_per_image", "boi_token_index", "eoi_token_index", "image_token_index")
    inner = {name: values[name] for name in names}  # as in a T5Gemma 2
    return {"encoder": inner, "image_token_index": values["image_token_index"]}


def read_config(values: Mapping[str, Any]) -> ModelConfig:
    require(values, use_bidirectional_attention=False, tie_word_embeddings=True)
    return read_stacks(values, values, dropout=0.0, own_id=None)


def name_map(config: ModelConfig) -> dict[str, Tensors]:
    # both stacks have the same stored tensors
    return {"tokens.weight": Tensors(("model.embed_tokens.weight",))} | {
        name: tensors
        for side in ("encoder", "decoder")
        for name, tensors in stack_names(config, side, "model", _NORMS).items()
    }


def read_stacks(
    encoder: Mapping[str, Any], decoder: Mapping[str, Any], dropout: float, own_id: int | None
) -> ModelConfig:
    """Make the configuration of an encoder-decoder from the text configurations of its two stacks."""
    for values in (encoder, decoder):
        require(values, final_logit_softcapping=None, attention_bias=False)
    shared = ("hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads", "head_dim")
    require(encoder, **{name: decoder[name] for name in (*shared, "query_pre_attn_scalar", "hidden_activation")})
    width, count, size = (decoder[name] for name in ("hidden_size", "num_attention_heads", "head_dim"))
    groups, scale_width, window = (
        decoder[name] for name in ("num_key_value_heads", "query_pre_attn_scalar", "sliding_window")
    )
    eps, source_window = decoder["rms_norm_eps"], encoder["sliding_window"]
    return ModelConfig(
        width=width,
        heads=HeadsConfig(
            count=count,
            width=None if size * count == width else size,
            kv_count=None if groups == count else groups,
            bias=False,
            scale_width=None if scale_width == size else scale_width,
            norm_eps=eps,
        ),
        feed_forward=FeedForwardConfig(
            width=decoder["intermediate_size"],
            activation=read_activation(decoder, "hidden_activation"),
            gated=True,
            bias=False,
        ),
        norm=NormConfig(placement="both", kind="rms", eps=eps),
        embedding=EmbeddingConfig(scaled=True, norm=False, own_id=own_id),
        encoder=EncoderConfig(
            layers=encoder["num_hidden_layers"],
            positions=read_rotary(encoder["rope_parameters"]),
            attention=read_layers(encoder["layer_types"], (source_window + 1) // 2 - 1, source_window // 2, False),
        ),
        decoder=DecoderConfig(
            layers=decoder["num_hidden_layers"],
            positions=read_rotary(decoder["rope_parameters"]),
            attention=read_layers(decoder["layer_types"], window - 1, 0, True),
            cross="merged",
        ),
        dropout=dropout,
        attention_dropout=decoder["attention_dropout"],
        activation_dropout=dropout,
        init_std=decoder["initializer_range"],
    )


def stack_names(config: ModelConfig, side: str, prefix: str, norms: tuple[str, str]) -> dict[str, Tensors]:
    """Map the parameter names of a stack; ``norms`` are those before and after self-attention."""
    assert config.decoder
    names = {f"{side}.norm.weight": Tensors((f"{prefix}.norm.weight",), shift=1.0)}
    layers = config.encoder.layers if side == "encoder" else config.decoder.layers
    stacked = {"q": "q", "kv": "kv"} if config.heads.kv_count else {"qkv": "qkv"}
    for layer in range(layers):
        ours, theirs = f"{side}.layers.{layer}", f"{prefix}.layers.{layer}"
        modules: dict[str, tuple[str, ...]] = {
            f"attention.{name}": tuple(f"self_attn.{part}_proj" for part in parts) for name, parts in stacked.items()
        }
        modules |= {
            "attention.out": ("self_attn.o_proj",),
            "feed_forward.up": ("mlp.gate_proj",),  # the activated one
            "feed_forward.gate": ("mlp.up_proj",),
            "feed_forward.down": ("mlp.down_proj",),
        }
        shifted = {
            "attention.norms.q": "self_attn.q_norm",
            "attention.norms.k": "self_attn.k_norm",
            "attention_residual.norm": norms[0],
            "attention_residual.norm_after": norms[1],
            "feed_forward_residual.norm": "pre_feedforward_layernorm",
            "feed_forward_residual.norm_after": "post_feedforward_layernorm",
        }
        for name, parts in modules.items():
            names[f"{ours}.{name}.weight"] = Tensors(tuple(f"{theirs}.{part}.weight" for part in parts))
        for name, part in shifted.items():
            names[f"{ours}.{name}.weight"] = Tensors((f"{theirs}.{part}.weight",), shift=1.0)
    return names


def read_rotary(values: Mapping[str, Mapping[str, Any]]) -> Rotary:
    """Read ``rope_parameters``, which has an entry for each type of layer."""
    full, local = values["full_attention"], values["sliding_attention"]
    kind, known = full["rope_type"], {"rope_type", "rope_theta", "factor", "original_max_position_embeddings"}
    if kind not in ("default", "linear", "yarn") or full.keys() - known or local["rope_type"] != "default":
        raise FarspanError(
            f"config.json: rope_parameters is {dict(values)!r}; farspan supports the types default, linear and yarn "
            "for full_attention, without further options, and default for sliding_attention; convert another model"
        )
    extended = {} if kind == "default" else {"factor": float(full["factor"]), "scaling": kind}
    trained = full.get("original_max_position_embeddings") if kind == "yarn" else None
    theta, local_theta = float(full["rope_theta"]), float(local["rope_theta"])
    same = theta == local_theta and kind == "default"
    return Rotary(theta, None if same else local_theta, trained_length=trained, **extended)


def read_layers(types: list[str], left: int, right: int, causal: bool) -> Layered:
    """Find the rule by which the types of layers repeat."""
    full = [index for index, kind in enumerate(types) if kind == "full_attention"]
    first = full[0] if full else len(types)
    every = full[1] - first if len(full) > 1 else max(first + 1, len(types) - first)
    pattern = Layered(left, right, every, -1 if first == every - 1 else first % every, causal)
    if not full:  # windows alone
        pattern = Layered(left, right, len(types) + 1, -1, causal)
    if [_kind(pattern, layer) for layer in range(len(types))] != types:
        raise FarspanError(
            f"config.json: layer_types is {types!r}; farspan supports 'full_attention' in every n-th layer and "
            "'sliding_attention' in the others; convert another model"
        )
    return pattern


def write_layers(pattern: Layered, layers: int, positions: object) -> dict[str, Any]:
    """Make the fields that ``read_layers`` and ``read_rotary`` read."""
    if not isinstance(positions, Rotary):
        raise FarspanError(f"the model has {positions}, not rotary positions; keep the model in farspan's format")
    full: dict[str, Any] = {"rope_type": "default", "rope_theta": positions.theta}
    if positions.factor > 1:
        full |= {"rope_type": positions.scaling, "factor": positions.factor}
        if positions.scaling == "yarn":
            full["original_max_position_embeddings"] = positions.trained_length
    local = {"rope_type": "default", "rope_theta": positions.local_theta or positions.theta}
    return {
        "layer_types": [_kind(pattern, layer) for layer in range(layers)],
        "rope_parameters": {"full_attention": full, "sliding_attention": local},
    }


def _kind(pattern: Layered, layer: int) -> str:
    return "sliding_attention" if pattern.at(layer).local else "full_attention"
