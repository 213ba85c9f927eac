"""Cross-entropy computed in chunks, without storing the logits of a whole batch."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from corpora.errors import FarspanError
from objectives.api.examples import IGNORED


@dataclass(frozen=True, kw_only=True)
class R3FConfig:
    """R3F, which keeps predictions stable when noise is added to the token vectors of the source.

    Source: Aghajanyan et al. 2021, arXiv:2008.03156; fairseq's
    ``examples/rxf/rxf_src/label_smoothed_cross_entropy_r3f.py``.

    Every batch is passed twice, both times with a gradient and each time with its own dropout. The symmetric divergence
    ``KL(p || q) + KL(q || p)`` of the two predictions, summed over target positions, is added to the loss.

    Attributes:
        weight: weight of the divergence, lambda.
        eps: size of the noise, which is drawn in float32 for every coordinate, also at padding.
        noise: ``uniform``, from ``U(-eps, eps)``, or ``normal``, from ``N(0, eps^2)``.
        per: ``sentence``, as published: the divergence of all target positions, *padding included*, is divided by the
            number of sentences, so that its weight grows with the length of targets. ``token``, as in the paper's text:
            the divergence of positions with a label is divided by their number. Both numbers count the whole update.
    """

    weight: float = 0.01
    eps: float = 1e-5
    noise: Literal["uniform", "normal"] = "uniform"
    per: Literal["sentence", "token"] = "sentence"

    def __post_init__(self) -> None:
        for name in ("weight", "eps"):
            if not 0 < getattr(self, name) < math.inf:
                raise FarspanError(f"loss.r3f.{name} is {getattr(self, name)}; it must be above 0 and finite")


@dataclass(frozen=True, kw_only=True)
class LossConfig:
    """The loss function.

    Attributes:
        label_smoothing: share e of the probability that is taken from the target.
        label_smoothing_form: ``szegedy`` spreads this share over the whole vocabulary of V tokens,
            ``(1 - e) nll + e mean`` (Szegedy et al. 2016, section 7; transformers, LED, PRIMERA); ``fairseq`` over the
            other tokens, ``(1 - e - e / (V - 1)) nll + e / (V - 1) sum`` (BART, BART-LS; PEGASUS less a constant).
        z_loss: weight of ``log(Z) ** 2`` for every target token, Z being the sum of the exponentiated logits, which
            keeps log(Z) near zero (T5 1.1 and LongT5 as released: 1e-4).

        r3f: also minimise the divergence between predictions with and without noise; for models with a decoder.

    Reported losses are the plain cross-entropy, without these terms.
    """

    label_smoothing: float = 0.0
    label_smoothing_form: Literal["szegedy", "fairseq"] = "szegedy"
    z_loss: float = 0.0
    r3f: R3FConfig | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.label_smoothing < 1:
            raise FarspanError(f"loss.label_smoothing is {self.label_smoothing}; it must lie in [0, 1)")
        if not 0 <= self.z_loss < math.inf:
            raise FarspanError(f"loss.z_loss is {self.z_loss}; it must be at least 0 and finite (T5 1.1 has 1e-4)")


CROSS_ENTROPY = LossConfig()
"""Plain cross-entropy."""
CHUNK = 512
"""Positions per chunk: the logits of 512 x 50,265 in float32 take 98 MiB."""


class Losses(NamedTuple):
    """Losses of a forward pass, summed over the target tokens; scalars, at least float32."""

    minimised: Tensor  # to differentiate
    plain: Tensor  # plain cross-entropy for reports, without a gradient
    divergence: Tensor | None = None  # of the two passes of R3F, over the positions that count; also minimised


def with_noise(vectors: Tensor, r3f: R3FConfig) -> Tensor:
    """Add the noise of R3F to token vectors, in at least float32; the result has the dtype of the vectors."""
    wide = vectors.to(torch.promote_types(vectors.dtype, torch.float32))
    noise = torch.empty_like(wide, requires_grad=False)
    noise = noise.uniform_(-r3f.eps, r3f.eps) if r3f.noise == "uniform" else noise.normal_(0, r3f.eps)
    return (wide + noise).to(vectors.dtype)


def counted_positions(labels: Tensor, r3f: R3FConfig) -> Tensor:
    """Positions whose divergence counts, ``(B, T)`` bool, from ``(B, T)`` labels; none in a row without labels."""
    targets = labels != IGNORED
    return targets if r3f.per == "token" else targets.any(1, keepdim=True).expand_as(targets)


def sum_cross_entropy(
    hidden: Tensor,
    labels: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    loss: LossConfig = CROSS_ENTROPY,
    noised: tuple[Tensor, Tensor] | None = None,
    chunk: int = CHUNK,
) -> Losses:
    """Sum the cross-entropy over targets; a step divides its gradients by the target tokens of all its batches.

    The last hidden states are ``(N, d)``; labels ``(N,)`` int, ``IGNORED`` where there is no target; weight and bias of
    the output layer ``(V, d)`` and ``(V,)``. With R3F, ``noised`` are the hidden states of the pass with noise and the
    positions whose divergence counts, ``(N,)`` bool. The logits of ``chunk`` positions are in memory at once; the
    backward pass recomputes them.
    """
    pieces = [labels.split(chunk), *(part.split(chunk) for part in noised or ())]
    parts = [
        checkpoint(_sums, part, weight, bias, loss, *piece, use_reentrant=False)
        for part, *piece in zip(hidden.split(chunk), *pieces, strict=True)
    ]
    return Losses(*(torch.stack(column).sum() for column in zip(*parts, strict=True)))


def _sums(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    loss: LossConfig,
    labels: Tensor,
    noised: Tensor | None = None,
    counted: Tensor | None = None,
) -> tuple[Tensor, ...]:
    """Compute the values of ``Losses`` for one chunk."""
    logits = _logits(hidden, weight, bias)
    log_probabilities, targets = logits.log_softmax(-1), labels != IGNORED
    plain = F.nll_loss(log_probabilities, labels.long(), ignore_index=IGNORED, reduction="sum")
    minimised = plain
    if loss.label_smoothing:
        share, size = loss.label_smoothing, logits.shape[-1]
        if loss.label_smoothing_form == "fairseq":
            share *= size / (size - 1)  # e / (V - 1) for each token, the target's own share included
        minimised = torch.lerp(plain, -(log_probabilities.mean(-1) * targets).sum(), share)
    if loss.z_loss:
        minimised = minimised + loss.z_loss * (logits.logsumexp(-1).square() * targets).sum()
    if noised is None or counted is None:
        return minimised, plain.detach()
    others = _logits(noised, weight, bias).log_softmax(-1)
    divergences = ((log_probabilities.exp() - others.exp()) * (log_probabilities - others)).sum(-1)
    return minimised, plain.detach(), (divergences * counted).sum()


def _logits(hidden: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Logits, ``(n, V)``, in at least float32."""
    logits = F.linear(hidden, weight, bias)
    return logits.to(torch.promote_types(logits.dtype, torch.float32))
