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

    Weights are normal with ``config.init_std``, biases zero, norms one. Every tensor is drawn by its own name, so two
    models that differ in one part start equal in all others.
    """
    model = make_model(config, vocab_size)
    for name, parameter in model.named_parameters():
        if parameter.dim() > 1:
            key = make_key(seed, "weights", {"name": name})
            generator = torch.Generator().manual_seed(int.from_bytes(key[:8], "little", signed=True))
            nn.init.normal_(parameter, std=config.init_std, generator=generator)
        elif name.endswith("bias"):
            nn.init.zeros_(parameter)
    for module in model.modules():
        if isinstance(module, PooledAttention) and not module.pooling.reference_init:
            nn.init.zeros_(module.out.weight)
    return model
