"""Measurement of the activations that autograd saves in a forward pass, on fake tensors.

Fake tensors have shapes but no storage, so the measurement takes neither memory nor time.

The model always runs with CPU operators. To estimate a CUDA device, two kinds are replaced by operators that save as
much as the CUDA kernels: dropout, which saves its mask in bytes, and attention patterns that use FlexAttention. RMSNorm
counts as on a CPU, where it saves float32; fused kernels save less.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd.graph import saved_tensors_hooks
from torch.utils._python_dispatch import TorchDispatchMode

from trainer.model.build import make_model
from trainer.model.config import ModelConfig
from trainer.model.context import Context, Globals
from trainer.model.decoder import EncoderOutput
from trainer.model.layers.attention import CrossAttention, SelfAttention, attend
from trainer.model.layers.pooled import PooledAttention
from trainer.model.patterns.full import Full
from trainer.model.seq2seq import Seq2Seq
from trainer.options import Checkpointing, Precision
from trainer.parallel.wrapping import EXPENSIVE, layers_of


class Numbers(NamedTuple):
    """Number formats of a training step: ``precision`` is that of matrix products, ``device`` a type of device.

    FSDP (``sharded``) computes everything in ``precision``, while autocast keeps norms and sums in float32.
    """

    precision: Precision
    device: str
    sharded: bool = False

    @property
    def narrow(self) -> int:
        """Bytes per number in inputs and results of matrix products."""
        return 2 if self.precision == "bf16" else 4

    @property
    def casts(self) -> bool:
        """True if inputs and weights of matrix products are cast to a narrower type."""
        return self.narrow < 4 and not self.sharded


@dataclass
class Layer:
    """Bytes of a layer for one sequence."""

    whole: float = 0.0  # activations saved without activation checkpointing
    products: float = 0.0  # results of matrix products and of fused attention
    entry: float = 0.0  # input of the layer
    working: float = 0.0  # peak of the gradients in its backward pass

    def saved_bytes(self, mode: Checkpointing) -> float:
        """Bytes saved for the backward pass."""
        return {"none": self.whole, "selective": self.entry + self.products, "layer": self.entry}[mode]


@dataclass
class Activations:
    """Bytes of a model's activations for one sequence.

    All layers of the decoder use the encoder's output: it is saved itself if ``shared``; if not, layers save copies,
    unless they are checkpointed.
    """

    layers: list[Layer] = field(default_factory=list)  # of the encoder, then of the decoder
    ends: float = 0.0  # saved before and after the layers
    encoder_output: float = 0.0
    shared: bool = False

    def saved_bytes(self, mode: Checkpointing) -> float:
        """Bytes saved for the backward pass."""
        output = self.encoder_output if self.shared or mode != "none" else 0
        return self.ends + output + sum(layer.saved_bytes(mode) for layer in self.layers)

    def working_bytes(self, mode: Checkpointing) -> float:
        """Peak of one layer's gradients and recomputed activations in the backward pass."""
        return max(layer.working + layer.whole - min(layer.whole, layer.saved_bytes(mode)) for layer in self.layers)


@cache
def activations(config: ModelConfig, source: int, target: int, numbers: Numbers, batch: int = 2) -> Activations:
    """Measure the bytes of a sequence in a forward pass without padding, with a global position if there can be any."""
    with FakeTensorMode():
        model = make_model(config, vocab_size=1).train()
        if numbers.sharded and numbers.narrow == 2:
            for module in model.modules():
                for name, weight in module.named_parameters(recurse=False):
                    setattr(module, name, nn.Parameter(weight.detach().bfloat16()))
        if numbers.device == "cuda":
            _save_as_on_cuda(model, fused=numbers.narrow == 2)
        meter = _Meter(model, batch)
        autocast = torch.autocast("cpu", torch.bfloat16) if numbers.casts else nullcontext()
        with saved_tensors_hooks(meter.save, lambda x: x), meter, autocast:
            hidden, output = _run(model, config, (batch, source, target))
        meter.save(hidden)
    result = meter.result
    if output is not None:
        parts = [part for part in (output.states, output.extra) if part is not None]
        result.encoder_output = sum(part.nbytes for part in parts) / batch
        result.shared = sum(meter.forget(part) for part in parts) > 0
    for layer, positions in zip(result.layers, meter.positions, strict=True):
        states = positions * config.width * (numbers.narrow if numbers.sharded else 4)
        layer.working = 2 * (positions * config.feed_forward.width * numbers.narrow + states)
    return result


def _run(model: Any, config: ModelConfig, sizes: tuple[int, int, int]) -> tuple[Tensor, EncoderOutput | None]:
    """Run the model; return the input of the output layer, and what the decoder attends to."""
    batch, source, target = sizes
    context = Context()
    if config.encoder.attention.takes_global_positions:
        at = torch.zeros(batch, 1, dtype=torch.int64)
        chosen = torch.zeros(batch, source, dtype=torch.bool)
        context = Context(globals=Globals(at, torch.ones(batch, 1, dtype=torch.bool), chosen))
    source_ids = torch.zeros(batch, source, dtype=torch.int64)
    if not isinstance(model, Seq2Seq):
        states, _ = model.encoder(model.tokens(source_ids), context)
        return model.head(states.flatten(0, 1)[torch.zeros(batch * target, dtype=torch.int64)]), None
    output = model.encode_in(source_ids, context)
    return model.decode(torch.zeros(batch, target, dtype=torch.int64), output), output


class _Meter(TorchDispatchMode):
    """Dispatch mode that counts, per layer, saved bytes and results of expensive operators.

    Storage that several layers save is counted for the first of them.
    """

    def __init__(self, model: Any, batch: int) -> None:
        super().__init__()
        self.result, self.positions = Activations(), list[int]()
        self._batch = batch
        self._layer: Layer | None = None
        # Keeps tensors alive, so that storage addresses stay unique.
        self._owners: dict[int, tuple[Layer | None, Tensor]] = {}
        self._weights = {_storage(parameter): parameter for parameter in model.parameters()}
        for layer in layers_of(model):
            layer.register_forward_pre_hook(self._enter)
            layer.register_forward_hook(self._leave)

    def _enter(self, _: nn.Module, inputs: tuple[Any, ...]) -> None:
        self._layer = Layer(entry=inputs[0].nbytes / self._batch)
        self.result.layers.append(self._layer)
        self.positions.append(inputs[0].shape[1])

    def _leave(self, *_: Any) -> None:
        self._layer = None

    def save(self, x: Tensor) -> Tensor:
        """Count the storage of ``x``, unless it was counted before or belongs to a weight."""
        storage = _storage(x)
        if storage not in self._owners and storage not in self._weights:
            self._owners[storage] = self._layer, x
            self._add(x.untyped_storage().nbytes(), self._layer)
        return x

    def forget(self, x: Tensor) -> bool:
        """Remove the storage of ``x`` from the count; return True if it was counted."""
        layer, known = self._owners.pop(_storage(x), (None, None))
        if known is not None:
            self._add(-known.untyped_storage().nbytes(), layer)
        return known is not None

    def _add(self, count: int, layer: Layer | None) -> None:
        if layer is None:
            self.result.ends += count / self._batch
        else:
            layer.whole += count / self._batch

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if func is torch.ops.aten._to_copy.default and _storage(args[0]) in self._weights:
            self._weights[_storage(result)] = result  # autocast's copy of a weight
        if self._layer is not None and func in EXPENSIVE:
            parts = result if isinstance(result, tuple) else (result,)
            self._layer.products += sum(part.nbytes for part in parts if isinstance(part, Tensor)) / self._batch
        return result


def _storage(x: Tensor) -> int:
    return x.untyped_storage()._cdata


def _save_as_on_cuda(model: nn.Module, fused: bool) -> None:
    """Replace dropout, and with ``can_fuse`` also attention that FlexAttention computes."""
    for module in model.modules():
        if isinstance(module, nn.Dropout) and module.p:
            module.forward = partial(_native_dropout, module.p)  # type: ignore[method-assign]
        if isinstance(module, SelfAttention | CrossAttention | PooledAttention):
            module.dropout = 0.0  # fused kernels recompute the mask
        if isinstance(module, SelfAttention) and fused and module.pattern.uses_flex:
            module.pattern = _Fused()


def _native_dropout(p: float, x: Tensor) -> Tensor:
    return torch.native_dropout(x, p, True)[0]


class _Fused(Full):
    """Stand-in for FlexAttention that saves the same tensors: queries, keys, values, result and log-sum-exps."""

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, context: Context, dropout: float = 0.0, scale: float | None = None
    ) -> Tensor:
        return attend(q, k, v, scale=scale)
