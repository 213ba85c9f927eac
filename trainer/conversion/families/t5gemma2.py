"""T5Gemma 2 (arXiv:2512.14856) as stored by Hugging Face; its vision tower is carried through unchanged."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from corpora.errors import FarspanError
from objectives.api.special_tokens import BEGIN, END, PAD
from trainer.conversion.families import gemma3
from trainer.conversion.families.gemma3 import read_stacks, stack_names, write_layers
from trainer.conversion.names import Tensors, require
from trainer.model.config import ModelConfig
from trainer.model.pattern import Pattern
from trainer.model.patterns.layered import Layered

MODEL_TYPES = ("t5gemma2",)
PATTERNS = ("layered",)
IGNORED = ("lm_head.out_proj.weight", "model.decoder.embed_tokens.*", "model.encoder.embed_tokens.eoi_embedding")
RENAMED = (
    (r"^model\.encoder\.text_model\.", "model.encoder."),
    (r"^model\.encoder\.vision_tower\.vision_model\.", "model.encoder.vision_tower."),
)
CARRIED = gemma3.CARRIED
_NORMS = ("pre_self_attn_layernorm", "post_self_attn_layernorm")
_TABLE = "model.encoder.embed_tokens"
_NO_IMAGES = {  # the smallest tower that the library can make
    "model_type": "siglip_vision_model",
    "hidden_size": 1,
    "intermediate_size": 1,
    "num_hidden_layers": 0,
    "num_attention_heads": 1,
    "image_size": 1,
    "patch_size": 1,
    "vision_use_head": False,
}


def complete(values: Mapping[str, Any]) -> dict[str, Any]:
    return {"decoder_start_token_id": values["bos_token_id"], **values}


def carried_fields(values: Mapping[str, Any]) -> dict[str, Any]:
    inner = {name: value for name, value in values["encoder"].items() if name not in ("text_config", "model_type")}
    return {"encoder": inner, "image_token_index": values["image_token_index"]}


def stub(config: ModelConfig) -> dict[str, Tensor]:
    """Make the tensors of a vision tower without layers, and the vector of the id that stands for none."""
    tower, projector = "model.encoder.vision_tower", "model.encoder.multi_modal_projector"
    unread = {} if config.embedding.own_id is not None else {f"{_TABLE}.eoi_embedding": torch.zeros(config.width)}
    return unread | {
        f"{tower}.embeddings.patch_embedding.weight": torch.zeros(1, 3, 1, 1),
        f"{tower}.embeddings.patch_embedding.bias": torch.zeros(1),
        f"{tower}.embeddings.position_embedding.weight": torch.zeros(1, 1),
        f"{tower}.post_layernorm.weight": torch.ones(1),
        f"{tower}.post_layernorm.bias": torch.zeros(1),
        f"{projector}.mm_input_projection_weight": torch.zeros(1, config.width),
        f"{projector}.mm_soft_emb_norm.weight": torch.zeros(1),
    }


def read_config(values: Mapping[str, Any]) -> ModelConfig:
    require(values, is_encoder_decoder=True, tie_word_embeddings=True)
    decoder, own = values["decoder"], values["encoder"].get("eoi_token_index")
    own_id = own if own is not None and 0 <= own < decoder["vocab_size"] else None
    return read_stacks(values["encoder"]["text_config"], decoder, values["dropout_rate"], own_id)


def name_map(config: ModelConfig) -> dict[str, Tensors]:
    names = {"tokens.weight": Tensors((f"{_TABLE}.weight",))}
    if config.embedding.own_id is not None:  # not scaled there
        names["tokens.own"] = Tensors((f"{_TABLE}.eoi_embedding",), factor=config.width**-0.5)
    for side in ("encoder", "decoder"):
        names |= stack_names(config, side, f"model.{side}", _NORMS)
    return names


def write_config(config: ModelConfig, vocab_size: int, special: Mapping[str, int]) -> dict[str, Any]:
    assert config.decoder
    own_id, heads = config.embedding.own_id, config.heads
    shared = {
        "vocab_size": vocab_size,
        "hidden_size": config.width,
        "intermediate_size": config.feed_forward.width,
        "num_attention_heads": heads.count,
        "num_key_value_heads": heads.groups,
        "head_dim": config.head_width,
        "query_pre_attn_scalar": int(heads.scale_width or config.head_width),
        "hidden_activation": "gelu_pytorch_tanh",
        "rms_norm_eps": config.norm.eps,
        "initializer_range": config.init_std,
    }
    ids = {"pad_token_id": special[PAD], "bos_token_id": special[BEGIN], "eos_token_id": special[END]}
    stacks = [
        shared | ids | _write_stack(stack.layers, stack.attention, stack.positions)
        for stack in (config.encoder, config.decoder)
    ]
    return {
        "architectures": ["T5Gemma2ForConditionalGeneration"],
        "model_type": "t5gemma2",
        "encoder": {
            "text_config": stacks[0],
            "vision_config": _NO_IMAGES,
            "mm_tokens_per_image": 1,
            "eoi_token_index": -1 if own_id is None else own_id,  # no id of a text
        },
        "decoder": stacks[1],
        "dropout_rate": config.dropout,
        "attention_dropout": config.attention_dropout,
        "tie_word_embeddings": True,
        "is_encoder_decoder": True,
        "vocab_size": vocab_size,
        **ids,
    }


def _write_stack(layers: int, attention: Pattern | None, positions: object) -> dict[str, Any]:
    if not isinstance(attention, Layered):
        raise FarspanError(
            "T5Gemma 2 has the attention pattern 'layered' in both stacks; keep the model in farspan's format"
        )
    return {
        "num_hidden_layers": layers,
        "sliding_window": attention.left + attention.right + 1,
        **write_layers(attention, layers, positions),
    }
