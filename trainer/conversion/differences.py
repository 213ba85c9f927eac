"""Differences between two model configurations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from fnmatch import fnmatchcase
from typing import Any

from trainer.model.config import ModelConfig

TRAINING = ("dropout", "attention_dropout", "activation_dropout", "initialisation", "init_std")
"""Fields that affect training only, not what a trained model computes."""


def differences(
    one: ModelConfig, other: ModelConfig, allowed: tuple[str, ...] = TRAINING
) -> list[tuple[str, Any, Any]]:
    """List every difference: dotted field, its value in ``one`` and in ``other``."""
    ours, theirs = flat(one), flat(other)
    return [
        (name, ours.get(name), theirs.get(name))
        for name in sorted(ours | theirs)
        if ours.get(name) != theirs.get(name) and not any(fnmatchcase(name, pattern) for pattern in allowed)
    ]


def given(section: Any) -> Any:
    """Convert a configuration to a recipe's form: dataclasses as tables, tuples as lists, without None values."""
    if isinstance(section, ModelConfig):
        return given(asdict(section))
    if isinstance(section, Mapping):
        return {name: given(value) for name, value in section.items() if value is not None}
    return list(section) if isinstance(section, tuple) else section


def flat(config: ModelConfig) -> dict[str, Any]:
    """Map dotted fields to values, without None values but always with the width of heads."""
    return dict(_leaves(given(config), "")) | {"heads.width": config.head_width}


def _leaves(section: Mapping[str, Any], prefix: str) -> Any:
    for name, value in section.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value
