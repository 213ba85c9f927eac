"""The state of a model and its optimizer as named tensors, whole or sharded, and the files that store them.

Tensors are stored by ``torch.distributed.checkpoint`` in its safetensors format: every rank writes its own shards and a
part of the replicated tensors, and reads what it needs, whichever rank wrote it. Nothing in the files is executed.
Values that are not tensors (learning rates, betas) come from the recipe and are not stored.
"""

from __future__ import annotations

import json
import os
import struct
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import torch
import torch.distributed.checkpoint as dcp
from safetensors import SafetensorError
from torch import Tensor, nn
from torch.distributed import ProcessGroup
from torch.distributed.checkpoint import HuggingFaceStorageReader, HuggingFaceStorageWriter
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_optimizer_state_dict,
)
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer

from corpora.errors import FarspanError

Tensors = dict[str, Tensor]

warnings.filterwarnings("ignore", "torch.distributed is disabled")  # expected for a single process


def model_tensors(model: nn.Module) -> Tensors:
    """Weights and buffers by name, as the bare model names them; the model may be wrapped (DDP) or sharded (FSDP2)."""
    return cast(Tensors, get_model_state_dict(model))


def optimizer_tensors(model: nn.Module, optimizer: Optimizer) -> Tensors:
    """``<parameter>.<quantity>`` -> tensor; empty before the optimizer's first step."""
    if not optimizer.state:  # PyTorch would create the state by a step, which would be counted
        return {}
    return _flat(_state_of(model, optimizer)["state"])


def restore_optimizer(model: nn.Module, optimizer: Optimizer, folder: Path, group: ProcessGroup | None) -> None:
    """Load the state that ``folder`` holds into a new optimizer."""
    stored = describe_stored_tensors(folder)
    if not stored:
        return
    found = _state_of(model, optimizer)  # PyTorch creates the state to be filled
    read_tensors(folder, {name: value for name, value in _flat(found["state"]).items() if name in stored}, group)
    # A parameter that never had a gradient has no state, neither in the run nor in the files.
    kept = {
        name: quantities
        for name, quantities in found["state"].items()
        if all(f"{name}.{key}" in stored for key in quantities)
    }
    set_optimizer_state_dict(model, optimizer, {**found, "state": kept}, options=StateDictOptions(strict=False))


def tensors_to_write(tensors: Tensors, rank: int, size: int) -> Tensors:
    """Select the tensors that this rank writes, so that each is written, and copied to CPU memory, once.

    Whole tensors are distributed over ranks by size. A tensor that is sharded within groups of ranks and replicated
    across them is written by one group.
    """
    loads, selected = [0] * size, {}
    largest_first = sorted(tensors.items(), key=lambda item: (-item[1].numel(), item[0]))
    for number, (name, tensor) in enumerate(largest_first):
        if isinstance(tensor, DTensor):
            mesh = tensor.device_mesh
            copies = [axis for axis, placed in enumerate(tensor.placements) if placed.is_replicate()]
            mine = all(mesh.get_local_rank(axis) == number % mesh.size(axis) for axis in copies)
        else:
            writer = loads.index(min(loads))
            loads[writer] += tensor.nbytes
            mine = writer == rank
        if mine:
            selected[name] = tensor
    return selected


def copy_to_cpu(tensors: Tensors) -> Tensors:
    """Copy to CPU memory, unaffected by later updates; sharded tensors stay sharded."""
    with torch.no_grad():
        return {name: tensor.detach().to("cpu", copy=True) for name, tensor in tensors.items()}


def not_finite(tensors: Tensors) -> list[str]:
    """Names of tensors with a NaN or an infinite value on this rank."""
    local = {name: value.to_local() if isinstance(value, DTensor) else value for name, value in tensors.items()}
    floating = {name: value for name, value in local.items() if value.is_floating_point() and value.numel()}
    # The extremes of a tensor with a NaN are NaN. All are queued before the first is read.
    finite = [torch.stack(value.aminmax()).isfinite().all() for value in floating.values()]
    return [name for name, good in zip(floating, finite, strict=True) if not good]


def write_tensors(folder: Path, tensors: Tensors, group: ProcessGroup | None) -> None:
    """Write ``shard-<rank>-*.safetensors`` into ``folder``, all ranks together; ``group`` None for a single process."""
    writer = HuggingFaceStorageWriter(str(folder), save_distributed=True)
    try:
        dcp.save(tensors, storage_writer=writer, process_group=group, no_dist=group is None)
    except CheckpointException as error:
        on_disk = all(isinstance(one, OSError) for one, _ in error.failures.values())
        raise (OSError if on_disk else RuntimeError)(_reasons(error)) from error


def shards_of(folder: Path, rank: int) -> list[Path]:
    """The files that a rank has written in ``folder``."""
    return sorted(folder.glob(f"shard-{rank + 1:05d}-*.safetensors"))


def sort_metadata(file: Path) -> None:
    """Sort the metadata in the header of a safetensors file, in place.

    The safetensors library writes its entries in random order, so that equal tensors would have unequal checksums.
    """
    with file.open("r+b") as opened:
        (size,) = struct.unpack("<Q", opened.read(8))
        header = json.loads(opened.read(size))
        header["__metadata__"] = dict(sorted(header.get("__metadata__", {}).items()))
        text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
        if len(text) > size:
            raise ValueError(f"{file}: the header has {size} bytes, and {len(text)} when it is written again")
        opened.seek(8)
        opened.write(text.ljust(size))
        opened.flush()
        os.fsync(opened.fileno())


def read_tensors(folder: Path, into: Tensors, group: ProcessGroup | None) -> None:
    """Read every tensor of ``folder`` into ``into``; any number of processes may have written it."""
    check_fit(folder, into)
    try:
        reader = HuggingFaceStorageReader(str(folder))
        dcp.load(dict(into), storage_reader=reader, process_group=group, no_dist=group is None)
    except CheckpointException as error:
        raise FarspanError(f"{folder} cannot be read: {_reasons(error)}") from error


def check_fit(folder: Path, into: Tensors) -> None:
    """Compare names and shapes."""
    stored = describe_stored_tensors(folder)
    odd = sorted(stored.keys() ^ into.keys()) + [
        f"{name} of shape {list(stored[name].shape)}, not {list(into[name].shape)}"
        for name in sorted(stored.keys() & into.keys())
        if stored[name].shape != into[name].shape
    ]
    if odd:
        raise FarspanError(
            f"{folder} does not fit what the recipe builds: {', '.join(odd[:3])}{' ...' if len(odd) > 3 else ''}; use "
            "the farspan that wrote it"
        )


def describe_stored_tensors(folder: Path) -> Tensors:
    """Describe the stored tensors by name, on device ``meta``; empty if there are no files."""
    if not folder.is_dir():
        return {}
    try:
        metadata = HuggingFaceStorageReader(str(folder)).read_metadata().state_dict_metadata
    except (SafetensorError, KeyError, TypeError, ValueError) as error:
        raise FarspanError(f"{folder} holds no tensors that farspan wrote ({error}); restore it") from None
    return {
        name: torch.empty(tensor.size, dtype=tensor.properties.dtype, device="meta")  # type: ignore[union-attr]
        for name, tensor in metadata.items()
    }


def load_tensors(folder: Path) -> Tensors:
    """Load every tensor of ``folder``, unsharded, on the CPU, in this process alone."""
    tensors = {name: torch.empty_like(tensor, device="cpu") for name, tensor in describe_stored_tensors(folder).items()}
    read_tensors(folder, tensors, None)
    return tensors


def _flat(state: Mapping[str, Mapping[str, Any]]) -> Tensors:
    return {f"{name}.{key}": value for name, quantities in state.items() for key, value in quantities.items()}


def _state_of(model: nn.Module, optimizer: Optimizer) -> dict[str, Any]:
    return cast(dict[str, Any], get_optimizer_state_dict(model, optimizer))


def _reasons(error: CheckpointException) -> str:
    """The error of each rank, without stack traces."""
    return "; ".join(sorted({f"{type(one).__name__}: {one}" for one, _ in error.failures.values()}))
