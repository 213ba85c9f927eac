"""The masked language model, an encoder with RoBERTa's head (arXiv:1907.11692), and its joint training.

``JointModel`` trains an encoder-decoder and the generator that chooses its targets (BART-LS, section 2.3).
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from objectives.api.examples import IGNORED
from trainer.model.config import ModelConfig
from trainer.model.context import make_context, on_host, send
from trainer.model.encoder import Encoder
from trainer.model.layers.sublayers import TokenTable, make_norm
from trainer.model.loss import CHUNK, CROSS_ENTROPY, LossConfig, Losses, sum_cross_entropy
from trainer.model.seq2seq import Seq2Seq


class MaskedLM(nn.Module):
    """A masked language model; calling it computes the loss, ``encode``, ``head`` and ``logits`` its parts."""

    def __init__(self, config: ModelConfig, vocab_size: int) -> None:
        super().__init__()
        self.config = config
        self.tokens = TokenTable(vocab_size, config.width, config.embedding)
        self.encoder = Encoder(config)
        bias = config.feed_forward.bias
        self.head = nn.Sequential(
            nn.Linear(config.width, config.width, bias=bias), nn.GELU(), make_norm(config.width, config.norm)
        )
        self.bias = nn.Parameter(torch.zeros(vocab_size))

    def forward(
        self,
        source_ids: Tensor,
        labels: Tensor,
        source_padding_mask: Tensor | None = None,
        segment_ids: Tensor | None = None,
        global_positions: Tensor | None = None,
        loss: LossConfig = CROSS_ENTROPY,
    ) -> Losses:
        """Compute the summed cross-entropy of the ``labels``, ``(B, S)`` int, ``IGNORED`` where there is no target.

        The other inputs are ``(B, S)``, as in ``Seq2Seq``. Divide the sums by the target tokens of the whole step.
        """
        # The head and its V logits are computed only for positions with a target, which are few.
        targets = send((on_host(labels).flatten() != IGNORED).nonzero().squeeze(1), labels.device)  # (N,)
        encoded = self.encode(source_ids, source_padding_mask, segment_ids, global_positions)
        hidden, labels = self.head(encoded.flatten(0, 1)[targets]), labels.flatten()[targets]
        return sum_cross_entropy(hidden, labels, self.tokens.weight, self.bias, loss=loss)

    def encode(
        self,
        source_ids: Tensor,
        source_padding_mask: Tensor | None = None,
        segment_ids: Tensor | None = None,
        global_positions: Tensor | None = None,
    ) -> Tensor:
        """Encode inputs of ``(B, S)``; returns hidden states, ``(B, S, d)``."""
        context = make_context(source_padding_mask, segment_ids, global_positions)
        return self.encoder(self.tokens(source_ids), context)[0]

    def logits(self, hidden: Tensor) -> Tensor:
        """Map hidden states ``(B, S, d)`` to logits ``(B, S, V)``."""
        return F.linear(self.head(hidden), self.tokens.weight, self.bias)


GENERATOR = "generator."
"""Prefix of the generator's parameter names in a ``JointModel``."""


class JointModel(Seq2Seq):
    """A ``Seq2Seq`` with unchanged parameter names and a generator, whose names have the prefix ``GENERATOR``.

    The two share no weights, and the choice of spans has no gradient, so each model learns only from its own loss.
    """

    def __init__(self, model: Seq2Seq, generator: MaskedLM, weight: float) -> None:
        nn.Module.__init__(self)
        self.tokens, self.encoder, self.decoder, self.output = model.tokens, model.encoder, model.decoder, model.output
        self.output_scale, self.attends_extra = model.output_scale, model.attends_extra
        self.generator, self.weight = generator, weight

    def forward(  # type: ignore[override]
        self,
        *,
        candidate_ids: Tensor | None = None,
        candidate_padding_mask: Tensor | None = None,
        candidate_labels: Tensor | None = None,
        target_counts: Tensor | None = None,
        loss: LossConfig = CROSS_ENTROPY,
        **inputs: Any,
    ) -> Losses:
        """Compute the summed cross-entropy of the encoder-decoder; ``minimised`` includes that of the generator.

        Candidates are ``(B, C)``, inputs of ``MaskedLM``; None, as for held-out data, leaves the generator out.
        ``target_counts``, ``(2,)`` int64, are the target tokens and candidate tokens of the whole step, over all ranks;
        other ``inputs`` are those of ``Seq2Seq``. ``minimised``, divided by the target tokens of the step, is the mean
        over target tokens plus ``weight`` times the mean over candidate tokens.
        """
        losses = super().forward(**inputs, loss=loss)
        if candidate_ids is None:
            return losses
        assert candidate_labels is not None
        assert target_counts is not None
        generated = self.generator(candidate_ids, candidate_labels, candidate_padding_mask, loss=loss).minimised
        targets, candidates = target_counts.clamp(min=1).to(generated.dtype).unbind()
        return losses._replace(minimised=losses.minimised + generated * (self.weight * targets / candidates))

    def score(self, candidate_ids: Tensor, candidate_padding_mask: Tensor | None, candidate_labels: Tensor) -> Tensor:
        """Compute the generator's cross-entropy of each candidate token, ``(B, C)`` float32; 0 without a label."""
        targets = candidate_labels != IGNORED
        hidden = self.generator.encode(candidate_ids, candidate_padding_mask)[targets]  # (N, d)
        pairs = zip(hidden.split(CHUNK), candidate_labels[targets].long().split(CHUNK), strict=True)
        losses = [F.cross_entropy(self.generator.logits(h).float(), label, reduction="none") for h, label in pairs]
        return torch.zeros(targets.shape, device=hidden.device).masked_scatter(targets, torch.cat(losses))
