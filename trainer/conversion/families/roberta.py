"""RoBERTa (arXiv:1907.11692) as stored by Hugging Face, with its masked-language-model head."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainer.conversion.families.bert import encoder_names, read_encoder
from trainer.conversion.names import Tensors, expand, require
from trainer.model.config import ModelConfig

MODEL_TYPES = ("roberta",)
PATTERNS: tuple[str, ...] = ()
IGNORED = ("roberta.pooler.*", "lm_head.decoder.*", "*position_ids")
_UNUSED_POSITIONS = 2  # RoBERTa's positions begin after the padding id


def read_config(values: Mapping[str, Any]) -> ModelConfig:
    require(values, pad_token_id=_UNUSED_POSITIONS - 1)
    return read_encoder(values, values["max_position_embeddings"] - _UNUSED_POSITIONS)


def name_map(config: ModelConfig) -> dict[str, Tensors]:
    return {
        **encoder_names("roberta", config.encoder.layers, _UNUSED_POSITIONS),
        **expand({"head.0": "lm_head.dense", "head.2": "lm_head.layer_norm"}),
        "bias": Tensors(("lm_head.bias",)),
    }
