"""The masked language model: an encoder with RoBERTa's head (arXiv:1907.11692)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from objectives.api.examples import IGNORED
from trainer.model.config import ModelConfig
from trainer.model.context import make_context
from trainer.model.encoder import Encoder
from trainer.model.host import on_host, sent
from trainer.model.loss import CROSS_ENTROPY, LossConfig, Losses, summed_cross_entropy


class MaskedLM(nn.Module):
    """A masked language model; calling it computes the loss, ``encode``, ``head`` and ``logits`` its parts.

    Attributes:
        config: configuration of the model.
    """

    def __init__(self, config: ModelConfig, vocab_size: int) -> None:
        super().__init__()
        self.config = config
        self.tokens = nn.Embedding(vocab_size, config.width)
        self.encoder = Encoder(config)
        self.head = nn.Sequential(
            nn.Linear(config.width, config.width), nn.GELU(), nn.LayerNorm(config.width, config.norm.eps)
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
        """Compute the summed cross-entropy.

        Args:
            source_ids, source_padding_mask, segment_ids, global_positions: ``(B, S)``, as in ``Seq2Seq``.
            labels: ``(B, S)`` int32 or int64, ``IGNORED`` where there is no target.
            loss: loss function.

        Returns:
            Sums; divide by the number of target tokens of the whole step.
        """
        # The head and its V logits are computed only for positions with a target, which are few.
        targets = sent((on_host(labels).flatten() != IGNORED).nonzero().squeeze(1), labels.device)  # (N,)
        encoded = self.encode(source_ids, source_padding_mask, segment_ids, global_positions)
        hidden, labels = self.head(encoded.flatten(0, 1)[targets]), labels.flatten()[targets]
        return summed_cross_entropy(hidden, labels, self.tokens.weight, self.bias, loss=loss)

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
