"""Mapping between farspan's tensors and stored tensors, in both directions, and helpers to read ``config.json``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import Tensor

from corpora.errors import FarspanError, first_few
from objectives.api.special_tokens import BEGIN, END, PAD
from trainer.model.build import make_model
from trainer.model.config import ModelConfig

ZEROS = ("*final_logits_bias",)
"""Stored tensors that farspan's models do not have, and that must therefore be zero."""


@dataclass(frozen=True)
class Tensors:
    """Stored tensors that make one of farspan's, concatenated along dimension 0.

    ``part`` is the 0-based number of an equal part of the stored tensors' rows, and the number of these parts; the
    others make tensors of their own (ModernBERT stores two projections as one). Farspan's numbers are the stored ones
    times ``factor`` plus ``shift`` (Gemma's norms multiply by 1 + weight).
    """

    names: tuple[str, ...]
    skip_rows: int = 0  # number of first rows to leave out (BART's positions begin after two unused rows)
    add_row: str | None = None  # stored tensor whose row 0 is added to every row (the token type of all tokens)
    factor: float = 1.0
    shift: float = 0.0
    part: tuple[int, int] = (0, 1)


Modules = dict[str, str | tuple[str, ...]]
"""Stored names of modules by farspan's; several if their tensors are concatenated."""


def expand(modules: Modules, attention_bias: bool = True) -> dict[str, Tensors]:
    """Expand module names to the names of their weights and biases."""
    listed = {ours: (theirs,) if isinstance(theirs, str) else theirs for ours, theirs in modules.items()}
    return {
        f"{ours}.{part}": Tensors(tuple(f"{name}.{part}" for name in theirs))
        for part in ("weight", "bias")
        for ours, theirs in listed.items()
        if part == "weight" or attention_bias or "attention." not in ours
    }


def state_shapes(config: ModelConfig, vocab_size: int) -> dict[str, torch.Size]:
    """Map the name of every tensor of a farspan model to its shape."""
    with torch.device("meta"):
        return {name: tensor.shape for name, tensor in make_model(config, vocab_size).state_dict().items()}


def load_state(
    name_map: Mapping[str, Tensors],
    stored: Mapping[str, Tensor],
    shapes: Mapping[str, torch.Size] | None = None,
    ignored: Iterable[str] = (),
) -> dict[str, Tensor]:
    """Make farspan's state dictionary in float32 from stored tensors."""
    faults, state = list(_faults_of_names(name_map, stored, ignored)), {}
    for ours, tensors in name_map.items():
        if not stored.keys() >= {*tensors.names, tensors.add_row} - {None}:
            continue  # listed as missing
        found = ", ".join(f"{name} {tuple(stored[name].shape)}" for name in tensors.names)
        try:
            state[ours] = _join(tensors, stored)
        except (RuntimeError, IndexError):
            faults.append(f"cannot be joined into {ours}: {found}")
            continue
        if shapes is not None and state[ours].shape != shapes[ours]:
            faults.append(f"shape: {found} makes {ours} {tuple(state[ours].shape)}, not {tuple(shapes[ours])}")
        if not state[ours].isfinite().all():
            faults.append(f"not finite: {', '.join(filter(None, (*tensors.names, tensors.add_row)))}")
    if faults:
        raise FarspanError(
            f"the weights do not fit the configuration beside them ({first_few(faults)}); "
            "give the folder of one whole model with its language-modelling head"
        )
    return state


def _faults_of_names(
    name_map: Mapping[str, Tensors], stored: Mapping[str, Tensor], ignored: Iterable[str]
) -> Iterator[str]:
    """Report stored tensors that are missing, unexpected, not zero where they must be, or of integers."""
    read = {name for tensors in name_map.values() for name in (*tensors.names, tensors.add_row) if name}
    carried = {name for name in stored if not any(fnmatchcase(name, pattern) for pattern in ignored)}
    yield from (f"missing: {name}" for name in sorted(read - stored.keys()))
    yield from (f"unexpected: {name} {tuple(stored[name].shape)}" for name in sorted(carried - read))
    for name in sorted(stored):
        if any(fnmatchcase(name, pattern) for pattern in ZEROS) and bool(stored[name].any()):
            yield f"not zero: {name}"
    for name in sorted(read & stored.keys()):
        if not stored[name].is_floating_point():
            yield f"of integer type {stored[name].dtype}: {name}"


def save_state(name_map: Mapping[str, Tensors], state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Make the state dictionary of the other format; skipped and added rows become zeros."""
    parts: dict[str, dict[int, Tensor]] = {}
    for ours, tensors in name_map.items():
        whole = state[ours] if not tensors.shift else state[ours] - tensors.shift
        whole = whole if tensors.factor == 1 else whole / tensors.factor
        for name, part in zip(tensors.names, whole.chunk(len(tensors.names)), strict=True):
            skipped = part.new_zeros(tensors.skip_rows, *part.shape[1:])
            part = torch.cat([skipped, part]) if tensors.skip_rows else part.contiguous()
            parts.setdefault(name, {})[tensors.part[0]] = part
        if tensors.add_row is not None:
            parts[tensors.add_row] = {0: torch.zeros_like(state[ours][:1])}
    return {
        name: rows[0] if len(rows) == 1 else torch.cat([rows[number] for number in sorted(rows)])
        for name, rows in parts.items()
    }


def _join(tensors: Tensors, stored: Mapping[str, Tensor]) -> Tensor:
    number, count = tensors.part
    rows = torch.cat([stored[name].chunk(count)[number].float()[tensors.skip_rows :] for name in tensors.names])
    rows = rows if tensors.factor == 1 else rows * tensors.factor
    rows = rows + tensors.shift if tensors.shift else rows
    return rows if tensors.add_row is None else rows + stored[tensors.add_row][0].float()


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
