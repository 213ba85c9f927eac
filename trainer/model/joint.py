"""Joint training of an encoder-decoder and the generator that chooses its targets (BART-LS, section 2.3)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from objectives.api.examples import IGNORED
from trainer.model.loss import CHUNK, CROSS_ENTROPY, LossConfig, Losses
from trainer.model.masked_lm import MaskedLM
from trainer.model.seq2seq import Seq2Seq

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

    def forward(
        self,
        source_ids: Tensor,
        decoder_ids: Tensor,
        labels: Tensor,
        source_padding_mask: Tensor | None = None,
        segment_ids: Tensor | None = None,
        global_positions: Tensor | None = None,
        loss: LossConfig = CROSS_ENTROPY,
        candidate_ids: Tensor | None = None,
        candidate_padding_mask: Tensor | None = None,
        candidate_labels: Tensor | None = None,
        target_counts: Tensor | None = None,
    ) -> Losses:
        """Compute the summed cross-entropy of the encoder-decoder; ``minimised`` includes that of the generator.

        Args:
            source_ids, decoder_ids, labels, source_padding_mask, segment_ids, global_positions: inputs of ``Seq2Seq``.
            loss: loss that is minimised, for both models.
            candidate_ids, candidate_padding_mask, candidate_labels: ``(B, C)``, inputs of ``MaskedLM``; None, as for
                held-out data, leaves the generator out.
            target_counts: ``(2,)`` int64, target tokens and candidate tokens of the whole step, over all ranks.

        Returns:
            Sums. ``minimised``, divided by the target tokens of the step, is the mean over target tokens plus
            ``weight`` times the mean over candidate tokens; ``plain`` is the encoder-decoder's own.
        """
        losses = super().forward(
            source_ids, decoder_ids, labels, source_padding_mask, segment_ids, global_positions, loss
        )
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
