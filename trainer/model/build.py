"""Construction and initialisation of models from their configuration."""

from __future__ import annotations

import math
from typing import cast

import torch
from torch import nn

from corpora.keyed import make_key
from trainer.model.config import ModelConfig
from trainer.model.layers.pooled import PooledAttention
from trainer.model.masked_lm import MaskedLM
from trainer.model.positions import Buckets
from trainer.model.seq2seq import Seq2Seq


def make_model(config: ModelConfig, vocab_size: int) -> Seq2Seq | MaskedLM:
    """Create the modules without initialising weights; under ``torch.device("meta")`` this takes no memory."""
    return Seq2Seq(config, config.decoder, vocab_size) if config.decoder else MaskedLM(config, vocab_size)


def build_model(config: ModelConfig, vocab_size: int, seed: int) -> Seq2Seq | MaskedLM:
    """Build the model that ``config`` describes, in float32 on the CPU.

    ``config.initialisation`` determines the distribution of weights; biases are zero, norms one. The random numbers
    of a tensor are keyed by its name, so models that differ in one part start equal in all others.
    """
    model = make_model(config, vocab_size)
    for name, parameter in model.named_parameters():
        if parameter.dim() > 1:
            key = make_key(seed, "weights", {"name": name})
            generator = torch.Generator().manual_seed(int.from_bytes(key[:8], "little", signed=True))
            if config.initialisation == "t5":
                _draw_as_t5(name, parameter, config, generator)
            else:
                nn.init.normal_(parameter, std=cast("float", config.init_std), generator=generator)
        elif name.endswith("bias"):
            nn.init.zeros_(parameter)
    for module in model.modules():
        if isinstance(module, PooledAttention) and not module.pooling.reference_init:
            nn.init.zeros_(module.out.weight)
    return model


_TRUNCATED = 0.87962566103423978
"""Standard deviation of a standard normal distribution truncated at 2."""


def _draw_as_t5(name: str, parameter: nn.Parameter, config: ModelConfig, generator: torch.Generator) -> None:
    """Initialise as T5 1.1 and LongT5 do in Flaxformer (``t5_1_1_flaxformer.gin``, ``longt5_1_1_*_flaxformer.gin``).

    Token vectors are standard normal. Every other layer has variance 1 / fan-in: attention is normal, with queries
    divided by sqrt(D) if scores are not; feed-forward and output layers are truncated at two standard deviations.
    Relative positions are uniform with variance 2 / (H + buckets). A tied token table is drawn like an output layer,
    unless the output is divided by sqrt(width), as in T5.
    """
    *path, module, _ = ["", *name.split(".")]
    if module == "bias" or "biases" in path:
        stack = config.decoder if config.decoder and name.startswith("decoder") else config.encoder
        positions = stack.positions
        buckets = parameter.shape[0]
        if isinstance(positions, Buckets) and positions.per_layer:
            buckets = positions.count  # one table of several, as in umT5
        reach = math.sqrt(3 * 2 / (buckets + parameter.shape[1]))
        nn.init.uniform_(parameter, -reach, reach, generator=generator)
    elif module in ("up", "gate", "down", "output") or (module == "tokens" and not _unit_tokens(config)):
        std = parameter.shape[1] ** -0.5 / _TRUNCATED
        nn.init.trunc_normal_(parameter, std=std, a=-2 * std, b=2 * std, generator=generator)
    elif module in ("tokens", "positions") or name == "encoder.extra":
        nn.init.normal_(parameter, generator=generator)
    else:
        nn.init.normal_(parameter, std=parameter.shape[1] ** -0.5, generator=generator)
    if module in ("q", "qkv", "global_qkv") and not config.heads.scaled:
        with torch.no_grad():
            parameter[: config.heads.count * config.head_width] *= config.head_width**-0.5


def _unit_tokens(config: ModelConfig) -> bool:
    """True if token vectors of unit variance give logits of unit variance."""
    return config.decoder is not None and (config.output.scaled or not config.output.tied)
