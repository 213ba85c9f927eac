"""Activation checkpointing, compilation, DDP and FSDP, applied to a model from outside."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from types import MethodType
from typing import Any, Literal

import torch
import torch.distributed as dist
import torch.fx.experimental._config
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

from corpora.errors import FarspanError
from trainer.model.decoder import DecoderLayer
from trainer.model.encoder import Encoder, EncoderLayer
from trainer.model.kernels.keep import Results
from trainer.model.layers.attention import SelfAttention
from trainer.model.pattern import Pattern
from trainer.parallel.distributed import PATIENCE, World


@dataclass(frozen=True, kw_only=True)
class ParallelConfig:
    """The way in which several processes share a model; ignored with one process.

    Attributes:
        mode: ``ddp`` replicates the model in every process; ``fsdp`` shards weights, gradients and optimizer state over
            all processes; ``hybrid`` shards within groups of ``shard_size`` processes and replicates across groups.
        shard_size: processes per group of ``hybrid``; None for those of one machine.
        reduce: when sharded gradients are summed over processes: once per ``step``, so that every process holds the
            gradients of all weights until its last micro-batch, or after each ``micro_batch``, so that it holds only
            its shard and sends more; ``hybrid`` sums over groups once per step in either case. Ignored by ``ddp``.

    Raises:
        FarspanError: a group of less than 1 process.
    """

    mode: Literal["ddp", "fsdp", "hybrid"] = "ddp"
    shard_size: int | None = None
    reduce: Literal["step", "micro_batch"] = "step"

    def __post_init__(self) -> None:
        if self.shard_size is not None and self.shard_size < 1:
            raise FarspanError(f"parallel.shard_size is {self.shard_size}; it must be at least 1")


def apply_activation_checkpointing(model: nn.Module, mode: Literal["none", "selective", "layer"]) -> None:
    """Apply activation checkpointing: with ``layer``, only each layer's input is saved and the backward pass recomputes
    the layer; with ``selective``, the results of its matrix products and of fused attention are saved too.

    Parameter names, hence checkpoints, stay the same.
    """
    if mode == "none":
        return
    for layer in layers_of(model):
        run = _checkpointed if mode == "layer" else _selectively_checkpointed
        layer.forward = MethodType(run, layer)  # type: ignore[method-assign]


def _checkpointed(layer: nn.Module, *inputs: Any) -> Tensor:
    # A function of our own rather than a partial of PyTorch's, because its compiler starts at no code of PyTorch's.
    return checkpoint(type(layer).forward, layer, *inputs, use_reentrant=False)


def _selectively_checkpointed(layer: nn.Module, *inputs: Any) -> Tensor:
    # Compiled layers take no kernel that is compiled by itself, and the compiler knows PyTorch's own contexts alone.
    contexts = _KEEP_DEAR if torch.compiler.is_compiling() else _keep_dear_and_kept
    return checkpoint(type(layer).forward, layer, *inputs, use_reentrant=False, context_fn=contexts)


EXPENSIVE = {
    torch.ops.aten.mm.default,
    torch.ops.aten.addmm.default,
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default,
    torch.ops.aten._scaled_dot_product_flash_attention.default,
    torch.ops.aten._scaled_dot_product_efficient_attention.default,
    torch.ops.aten._scaled_dot_product_cudnn_attention.default,
    torch.ops.higher_order.flex_attention,  # where it is not compiled; else trainer.model.kernels.keep sees to it
}
"""Operators whose results cost more to compute again than to save; not batched products, which are attention scores."""


def _choose(context: Any, operation: Any, *arguments: Any, **named: Any) -> CheckpointPolicy:
    dear = operation in EXPENSIVE or str(operation).startswith("torch_attn._varlen_attn")
    return CheckpointPolicy.MUST_SAVE if dear else CheckpointPolicy.PREFER_RECOMPUTE


_KEEP_DEAR = partial(create_selective_checkpoint_contexts, _choose)


def _keep_dear_and_kept() -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
    """Contexts of a layer's first run and of its second, which makes no dear operator's and no ``kept`` result anew."""
    first, again = _KEEP_DEAR()
    results = Results()
    return _both(first, results.first()), _both(again, results.again())


@contextmanager
def _both(outer: AbstractContextManager[Any], inner: AbstractContextManager[Any]) -> Iterator[None]:
    with outer, inner:
        yield


def apply_compile(model: nn.Module, backend: str = "inductor") -> None:
    """Compile each layer by itself, after activation checkpointing, which then is part of what is compiled.

    Layers of one kind share their code, so a deep stack takes no longer to compile than a shallow one. Lengths are
    dynamic: beyond a few blocks, other multiples of the pattern's block need no recompilation. Names of parameters,
    hence checkpoints, stay the same.

    Raises:
        FarspanError: no C++ compiler, which the generated code needs.
    """
    compiler = os.environ.get("CXX", "g++")
    if backend == "inductor" and shutil.which(compiler) is None:
        raise FarspanError(
            f"run.compile is true, but there is no {compiler}; install it, name another in CXX, or unset it"
        )
    # A target as long as the model is wide is a coincidence, not a rule for other lengths.
    torch.fx.experimental._config.use_duck_shape = False
    # With and without padding, pooling, a shift and gradients, there are more kinds of layers than the default of 8.
    torch._dynamo.config.recompile_limit = max(torch._dynamo.config.recompile_limit, 64)
    for layer in layers_of(model):
        layer.compile(backend=backend, fullgraph=True, dynamic=True)


def apply_attention(encoder: Encoder, pattern: Pattern) -> None:
    """Change the attention of an encoder to another pattern with the same weights."""
    encoder.pattern = pattern
    for index, layer in enumerate(encoder.layers):
        layer.attention.pattern = pattern.at(index)  # type: ignore[union-attr, assignment]


def apply_parallel(
    model: nn.Module, config: ParallelConfig, world: World, precision: Literal["bf16", "fp32"]
) -> nn.Module:
    """Share ``model`` with the other ranks, after activation checkpointing and compilation.

    Every rank must have the same weights. Gradients are the *mean* over ranks.

    Args:
        model: model on this rank's device; ``fsdp`` and ``hybrid`` change it in place.
        config: configuration.
        world: all processes of the run.
        precision: with ``bf16``, FSDP gathers and computes in bfloat16, stores and reduces in float32.

    Returns:
        The module to call instead of the model.

    Raises:
        FarspanError: a number of ranks that is no multiple of ``shard_size``.
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
    # Else ranks whose batches leave a parameter out would reduce fewer gradients than the others, and hang.
    fully_shard(model, **options).set_reduce_scatter_unused_params(True)
    return model


def _mesh(config: ParallelConfig, world: World) -> DeviceMesh:
    """One dimension, over which weights are shards; with ``hybrid`` one before it, over which they are copies."""
    if config.mode == "fsdp":
        return init_device_mesh(world.device.type, (world.size,), mesh_dim_names=("shard",))
    shards = config.shard_size or world.local_size
    if world.size % shards:
        raise FarspanError(
            f"parallel.shard_size is {shards} with {world.size} processes; start a multiple of it, or change it"
        )
    grid = torch.arange(world.size).view(-1, shards)
    # Groups that a mesh makes by itself have the backend's own time limit, 10 minutes for NCCL.
    groups = [dist.new_subgroups_by_enumeration(members.tolist(), timeout=PATIENCE)[0] for members in (grid.T, grid)]
    return DeviceMesh.from_group(groups, world.device.type, grid, mesh_dim_names=("copies", "shard"))


def reducing(model: nn.Module, config: ParallelConfig, last: bool) -> AbstractContextManager[Any]:
    """Around forward and backward of a micro-batch: gradients are reduced over ranks when ``config.reduce`` says.

    Args:
        model: module that ``apply_parallel`` returned.
        config: its configuration.
        last: True for the last micro-batch of a step.
    """
    if isinstance(model, FSDPModule):
        model.set_requires_gradient_sync(last or config.reduce == "micro_batch")
        model.set_requires_all_reduce(last)  # over copies; shards are summed by then
    return model.no_sync() if isinstance(model, DistributedDataParallel) and not last else nullcontext()


def layers_of(model: nn.Module) -> list[nn.Module]:
    """All encoder and decoder layers of ``model``, which are checkpointed, compiled and sharded one by one."""
    return [module for module in model.modules() if isinstance(module, EncoderLayer | DecoderLayer)]
