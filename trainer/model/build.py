"""From a configuration to a model with its first weights."""

from __future__ import annotations

import torch
from torch import nn

from corpora.keyed import make_key
from trainer.model.config import ModelConfig
from trainer.model.masked_lm import MaskedLM
from trainer.model.pooled import PooledAttention
from trainer.model.seq2seq import Seq2Seq


def make_model(config: ModelConfig, vocab_size: int) -> Seq2Seq | MaskedLM:
    """The modules alone, their weights not drawn; under ``torch.device("meta")`` it takes no memory."""
    return Seq2Seq(config, config.decoder, vocab_size) if config.decoder else MaskedLM(config, vocab_size)


def build_model(config: ModelConfig, vocab_size: int, seed: int) -> Seq2Seq | MaskedLM:
    """Build the model that ``config`` describes, in float32 on the CPU.

    Weights are normal, biases zero, norms one. Every tensor is drawn by its own name, so two models that differ in one
    part start equal in all others.
    """
    model = make_model(config, vocab_size)
    for name, parameter in model.named_parameters():
        if parameter.dim() > 1:
            key = make_key(seed, "weights", {"name": name})
            generator = torch.Generator().manual_seed(int.from_bytes(key[:8], "little", signed=True))
            if config.initialisation == "t5":
                _draw_as_t5(name, parameter, config, generator)
            else:
                nn.init.normal_(parameter, std=config.init_std, generator=generator)
        elif name.endswith("bias"):
            nn.init.zeros_(parameter)
    for module in model.modules():
        if isinstance(module, PooledAttention) and not module.pooling.reference_init:
            nn.init.zeros_(module.out.weight)
    return model


def _draw_as_t5(name: str, parameter: nn.Parameter, config: ModelConfig, generator: torch.Generator) -> None:
    """T5's standard deviations (arXiv:1910.10683, as released): vectors of tokens and positions, and an output layer of
    its own, 1; relative positions 1 / sqrt(width); other layers 1 / sqrt(their inputs).

    Queries are smaller by sqrt(D) where scores are not divided by it.
    """
    *path, module, _ = ["", *name.split(".")]
    if module in ("tokens", "output", "positions") or name == "encoder.extra":
        std = 1.0
    elif module == "bias" or "biases" in path:
        std = config.width**-0.5
    else:
        std = parameter.shape[1] ** -0.5
    nn.init.normal_(parameter, std=std, generator=generator)
    if module in ("q", "qkv", "global_qkv") and not config.heads.scaled:
        with torch.no_grad():
            parameter[: config.heads.count * config.head_width] *= config.head_width**-0.5
