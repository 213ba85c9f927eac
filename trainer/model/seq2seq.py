"""The encoder-decoder, one token table for its source, its target and its logits (BART's tying)."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from trainer.model.config import DecoderConfig, ModelConfig
from trainer.model.decoder import Decoder
from trainer.model.encoder import Encoder
from trainer.model.loss import summed_cross_entropy


class Seq2Seq(nn.Module):
    """Text to text: ``model(...)`` is the loss, ``encode``, ``decode`` and ``logits`` are its parts."""

    def __init__(self, config: ModelConfig, decoder: DecoderConfig, vocab_size: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocab_size, config.width)
        self.encoder = Encoder(config)
        self.decoder = Decoder(config, decoder)

    def forward(
        self, source_ids: Tensor, decoder_ids: Tensor, labels: Tensor, source_real: Tensor | None = None
    ) -> Tensor:
        """Summed cross-entropy.

        Args:
            source_ids: ``(B, S)`` int64.
            decoder_ids: ``(B, T)`` int64, the target shifted right by one.
            labels: ``(B, T)`` int64, the target, ``IGNORED`` at padding.
            source_real: ``(B, S)`` bool, False at padding; None where there is none.

        Returns:
            Scalar float32; divide by the number of target tokens of the whole step.
        """
        hidden = self.decode(decoder_ids, self.encode(source_ids, source_real), source_real)
        return summed_cross_entropy(hidden.flatten(0, 1), labels.flatten(), self.tokens.weight)

    def encode(self, source_ids: Tensor, source_real: Tensor | None = None) -> Tensor:
        """``(B, S)`` -> ``(B, S, d)``."""
        return self.encoder(self.tokens(source_ids), source_real)

    def decode(self, decoder_ids: Tensor, memory: Tensor, source_real: Tensor | None = None) -> Tensor:
        """``(B, T)``, ``(B, S, d)`` -> ``(B, T, d)``."""
        return self.decoder(self.tokens(decoder_ids), memory, source_real)

    def logits(self, hidden: Tensor) -> Tensor:
        """``(B, T, d)`` -> ``(B, T, V)``."""
        return F.linear(hidden, self.tokens.weight)
