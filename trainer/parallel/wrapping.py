"""Activation checkpointing, compilation, DDP and FSDP, applied to a model from outside."""

from __future__ import annotations

import os
import shutil
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from types import MethodType
from typing import Any

import torch
import torch.distributed as dist
import torch.fx.experimental._config
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import get_model_state_dict
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

from corpora.errors import FarspanError
from trainer.model.build import make_model
from trainer.model.config import ModelConfig
from trainer.model.decoder import DecoderLayer
from trainer.model.encoder import Encoder, EncoderLayer
from trainer.model.kernels.flex import Results
from trainer.model.layers.attention import SelfAttention
from trainer.model.pattern import Pattern
from trainer.options import Checkpointing, ParallelMode, Precision, Reduction
from trainer.parallel.distributed import PATIENCE, World


@dataclass(frozen=True, kw_only=True)
class ParallelConfig:
    """Distribution of a model over several processes; ignored with one process.

    Attributes:
        mode: ``ddp`` replicates the model in every process; ``fsdp`` shards weights, gradients and optimizer state over
            all processes; ``hybrid`` shards within groups of ``shard_size`` processes and replicates across groups.
        shard_size: processes per group of ``hybrid``; None for those of one machine.
        reduce: time at which sharded gradients are summed over processes: once per ``step``, so that every process
            holds the gradients of all weights until its last micro-batch, or after each ``micro_batch``, so that it
            holds only its shard and sends more. ``hybrid`` sums over groups once per step in either case. Ignored by
            ``ddp``.
    """

    mode: ParallelMode = "ddp"
    shard_size: int | None = None
    reduce: Reduction = "step"

    def __post_init__(self) -> None:
        if self.shard_size is not None and self.shard_size < 1:
            raise FarspanError(f"parallel.shard_size is {self.shard_size}; it must be at least 1")


def apply_activation_checkpointing(model: nn.Module, mode: Checkpointing) -> None:
    """Apply activation checkpointing to every layer.

    With ``layer``, only the input of a layer is saved, and the backward pass recomputes the layer; with ``selective``,
    the results of its matrix products and of fused attention are also saved. Parameter names, hence checkpoints, stay
    the same.
    """
    if mode == "none":
        return
    for layer in layers_of(model):
        run = _checkpointed if mode == "layer" else _selectively_checkpointed
        layer.forward = MethodType(run, layer)


def _checkpointed(layer: nn.Module, *inputs: Any) -> Tensor:
    # A function, not a partial of PyTorch's, because torch.compile does not start inside PyTorch's code.
    return checkpoint(type(layer).forward, layer, *inputs, use_reentrant=False)


def _selectively_checkpointed(layer: nn.Module, *inputs: Any) -> Tensor:
    # Compiled layers use no separately compiled kernels, and the compiler supports only PyTorch's own contexts.
    contexts = _SAVE_EXPENSIVE if torch.compiler.is_compiling() else _save_expensive_and_results
    return checkpoint(type(layer).forward, layer, *inputs, use_reentrant=False, context_fn=contexts)


EXPENSIVE = {
    torch.ops.aten.mm.default,
    torch.ops.aten.addmm.default,
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default,
    torch.ops.aten._scaled_dot_product_flash_attention.default,
    torch.ops.aten._scaled_dot_product_efficient_attention.default,
    torch.ops.aten._scaled_dot_product_cudnn_attention.default,
    torch.ops.higher_order.flex_attention,  # if not compiled; else see trainer.model.kernels.flex
}
"""Operators whose results are cheaper to save than to recompute; without batched products, the attention scores."""


def _choose(context: Any, operation: Any, *arguments: Any, **named: Any) -> CheckpointPolicy:
    expensive = operation in EXPENSIVE or str(operation).startswith("torch_attn._varlen_attn")
    return CheckpointPolicy.MUST_SAVE if expensive else CheckpointPolicy.PREFER_RECOMPUTE


_SAVE_EXPENSIVE = partial(create_selective_checkpoint_contexts, _choose)


def _save_expensive_and_results() -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
    """Return contexts for a layer's two runs; the second reuses results of ``EXPENSIVE`` and of ``compute_once``."""
    first, again = _SAVE_EXPENSIVE()
    results = Results()
    return results.run(False, first), results.run(True, again)


def apply_compile(model: nn.Module, backend: str = "inductor") -> None:
    """Compile each layer separately; activation checkpointing must be applied before, and is compiled too.

    Layers of one kind share their code, so a deep stack takes no longer to compile than a shallow one. Lengths are
    dynamic: beyond a few blocks, other multiples of the pattern's block need no recompilation. Parameter names, hence
    checkpoints, stay the same.
    """
    compiler = os.environ.get("CXX", "g++")
    if backend == "inductor" and shutil.which(compiler) is None:
        raise FarspanError(
            f"run.compile is true, but there is no {compiler}; install it, name another in CXX, or unset it"
        )
    # Without this, a target length that equals the model's width by chance would be taken to be the same dimension.
    torch.fx.experimental._config.use_duck_shape = False
    # Padding, pooling, shifts and gradients make more variants of a layer than the default limit of 8.
    torch._dynamo.config.recompile_limit = max(torch._dynamo.config.recompile_limit, 64)
    for layer in layers_of(model):
        pattern: Pattern = layer.attention.pattern  # type: ignore[union-attr, assignment]
        if not pattern.compiles:
            raise FarspanError(
                f"run.compile is true, but layers with the pattern {pattern.pattern!r} cannot be compiled; unset it"
            )
        layer.compile(backend=backend, fullgraph=True, dynamic=True)


def apply_attention(encoder: Encoder, pattern: Pattern) -> None:
    """Replace the attention pattern of an encoder by another one with the same weights."""
    encoder.pattern = pattern
    for index, layer in enumerate(encoder.layers):
        layer.attention.pattern = pattern.at(index)  # type: ignore[union-attr]


def apply_parallel(model: nn.Module, config: ParallelConfig, world: World, precision: Precision) -> nn.Module:
    """Distribute ``model`` over all ranks, and return the module to call; checkpoint and compile layers before.

    Every rank must have the same weights. Gradients are the *mean* over ranks. ``fsdp`` and ``hybrid`` change the model
    in place; with ``bf16`` they gather and compute in bfloat16, and store and reduce in float32.
    """
    if world.size == 1:
        return model
    if config.mode == "ddp":
        attentions = (module for module in model.modules() if isinstance(module, SelfAttention))
        sometimes = any(attention.pattern.optional_weights for attention in attentions)
        return DistributedDataParallel(
            model, forward_sync_buffers=False, gradient_as_bucket_view=True, find_unused_parameters=sometimes,
            device_ids=[world.device] if world.device.type == "cuda" else None,
        )  # fmt: skip
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    options: dict[str, Any] = {"mesh": _mesh(config, world)}
    if precision == "bf16":
        options["mp_policy"] = policy
    for layer in layers_of(model):
        fully_shard(layer, **options)
    # Without this, ranks whose batches do not use a parameter would reduce fewer gradients than the others, and hang.
    fully_shard(model, **options).set_reduce_scatter_unused_params(True)
    return model


def whole_copy(model: nn.Module, config: ModelConfig) -> nn.Module:
    """Gather a plain copy of a sharded model on each rank, in float32; all ranks call this together."""
    state: dict[str, Any] = {
        name: value.full_tensor() if isinstance(value, DTensor) else value
        for name, value in get_model_state_dict(model).items()
    }
    with torch.device("meta"):
        copy = make_model(config, state["tokens.weight"].shape[0])
    copy.load_state_dict({name: state[name] for name in copy.state_dict()}, assign=True)
    return copy.requires_grad_(False)


def _mesh(config: ParallelConfig, world: World) -> DeviceMesh:
    """Make the device mesh: one dimension for shards, with ``hybrid`` preceded by one for replicas."""
    if config.mode == "fsdp":
        return init_device_mesh(world.device.type, (world.size,), mesh_dim_names=("shard",))
    shards = config.shard_size or world.local_size
    if world.size % shards:
        raise FarspanError(
            f"parallel.shard_size is {shards} with {world.size} processes; start a multiple of it, or change it"
        )
    grid = torch.arange(world.size).view(-1, shards)
    # Groups that a mesh creates itself have the backend's default time limit, 10 minutes for NCCL.
    groups = [dist.new_subgroups_by_enumeration(members.tolist(), timeout=PATIENCE)[0] for members in (grid.T, grid)]
    return DeviceMesh.from_group(groups, world.device.type, grid, mesh_dim_names=("copies", "shard"))


def reduction_context(model: nn.Module, config: ParallelConfig, last: bool) -> AbstractContextManager[Any]:
    """Return the context of a micro-batch's forward and backward pass, which reduces gradients by ``config.reduce``."""
    if isinstance(model, FSDPModule):
        model.set_requires_gradient_sync(last or config.reduce == "micro_batch")
        model.set_requires_all_reduce(last)  # over replicas; shards are already summed
    return model.no_sync() if isinstance(model, DistributedDataParallel) and not last else nullcontext()


def layers_of(model: nn.Module) -> list[nn.Module]:
    """Return all encoder and decoder layers of ``model``, the units of checkpointing, compilation and sharding."""
    return [module for module in model.modules() if isinstance(module, EncoderLayer | DecoderLayer)]
