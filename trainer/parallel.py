"""What is done to a model from outside, so that model code stays free of it."""

from __future__ import annotations

from functools import partial
from typing import Literal

from torch import nn
from torch.utils.checkpoint import checkpoint

from trainer.model.masked_lm import MaskedLM
from trainer.model.seq2seq import Seq2Seq


def apply_activation_checkpointing(model: Seq2Seq | MaskedLM, mode: Literal["none", "layer"]) -> None:
    """Trade time for memory: with ``layer``, only each layer's input is kept and the backward pass runs it again.

    Parameter names, hence checkpoints, stay the same.
    """
    if mode == "none":
        return
    layers: list[nn.Module] = list(model.encoder.layers)
    if isinstance(model, Seq2Seq):
        layers += model.decoder.layers
    for layer in layers:
        layer.forward = partial(checkpoint, layer.forward, use_reentrant=False)  # type: ignore[method-assign]
