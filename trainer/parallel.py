"""What is done to a model from outside, so that model code stays free of it."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from types import MethodType
from typing import Any, Literal

import torch
import torch.fx.experimental._config
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from corpora.errors import FarspanError
from trainer.model.masked_lm import MaskedLM
from trainer.model.seq2seq import Seq2Seq


@dataclass(frozen=True, kw_only=True)
class ParallelConfig:
    """How several processes share a model; with one process there is nothing to share.

    Attributes:
        mode: ``ddp`` keeps the whole model in every process; ``fsdp`` keeps a share of weights, gradients and
            optimiser state in each; ``hybrid`` shards within groups of ``shard_size`` processes and keeps copies across
            them.
        shard_size: processes of a group of ``hybrid``; None: those of one machine.

    Raises:
        FarspanError: a group of less than 1 process.
    """

    mode: Literal["ddp", "fsdp", "hybrid"] = "ddp"
    shard_size: int | None = None

    def __post_init__(self) -> None:
        if self.shard_size is not None and self.shard_size < 1:
            raise FarspanError(f"parallel.shard_size is {self.shard_size}; it must be at least 1")


def apply_activation_checkpointing(model: Seq2Seq | MaskedLM, mode: Literal["none", "selective", "layer"]) -> None:
    """Trade time for memory: with ``layer``, only each layer's input is kept and the backward pass runs it again.

    Parameter names, hence checkpoints, stay the same.
    """
    if mode == "none":
        return
    for layer in _layers(model):
        layer.forward = MethodType(_checkpointed, layer)  # type: ignore[method-assign]


def _checkpointed(layer: nn.Module, *inputs: Any) -> Tensor:
    # A function of our own rather than a partial of PyTorch's, because its compiler starts at no code of PyTorch's.
    return checkpoint(type(layer).forward, layer, *inputs, use_reentrant=False)


def apply_compile(model: Seq2Seq | MaskedLM, backend: str = "inductor") -> None:
    """Compile each layer by itself, after activation checkpointing, which then is part of what is compiled.

    Layers of one kind share their code, so that a deep stack costs no more time to compile than a shallow one. Lengths
    are symbols: from a few blocks on, other multiples of the pattern's block compile nothing anew. Names of parameters,
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
    for layer in _layers(model):
        layer.compile(backend=backend, fullgraph=True, dynamic=True)


def _layers(model: Seq2Seq | MaskedLM) -> list[nn.Module]:
    return [*model.encoder.layers, *(model.decoder.layers if isinstance(model, Seq2Seq) else ())]
