"""Helpers of all families for reading and writing ``config.json``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from corpora.errors import FarspanError
from objectives.api.special_tokens import BEGIN, END, PAD

_ACTIVATIONS = {
    "gelu": "gelu",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
}


def require(values: Mapping[str, Any], **needed: Any) -> None:
    """Check fields whose values are fixed in farspan's models."""
    for name, value in needed.items():
        if values.get(name, value) != value:
            raise FarspanError(
                f"config.json: {name} is {values[name]!r}; farspan supports only {value!r}; convert another model"
            )


def read_activation(values: Mapping[str, Any], field: str) -> Any:
    """Return farspan's name of the activation in ``field``."""
    if values[field] not in _ACTIVATIONS:
        raise FarspanError(
            f"config.json: {field} is {values[field]!r}; known are {', '.join(_ACTIVATIONS)}; convert another model"
        )
    return _ACTIVATIONS[values[field]]


def write_activation(activation: str) -> str:
    """Return Hugging Face's name of an activation."""
    return "gelu_new" if activation == "gelu_tanh" else activation


def token_ids(special: Mapping[str, int]) -> dict[str, int]:
    """Make the fields for the padding, begin and end ids; decoders start with the end token, as BART's does."""
    return {
        "pad_token_id": special[PAD],
        "bos_token_id": special[BEGIN],
        "eos_token_id": special[END],
        "decoder_start_token_id": special[END],
    }
