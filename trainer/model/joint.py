"""An encoder-decoder, and the masked language model that chooses what it has to say (BART-LS, section 2.3)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from objectives.api.examples import IGNORED
from trainer.model.loss import CHUNK, CROSS_ENTROPY, LossConfig, Losses
from trainer.model.masked_lm import MaskedLM
from trainer.model.seq2seq import Seq2Seq

GENERATOR = "generator."
"""What the names of a generator's parameters begin with in a ``JointModel``."""


class JointModel(Seq2Seq):
    """A ``Seq2Seq`` with the same names of parameters, and those of its generator behind ``GENERATOR``.

    The two share no weights: the choice of spans has no gradient, so each learns from its own loss alone.
    """

    def __init__(self, model: Seq2Seq, generator: MaskedLM, weight: float) -> None:
        """
        Args:
            model, generator: their modules become parts of this one.
            weight: of the generator's mean loss beside the mean loss of the encoder-decoder.
        """
        nn.Module.__init__(self)
        self.tokens, self.encoder, self.decoder, self.output = model.tokens, model.encoder, model.decoder, model.output
        self.output_scale, self.attends_extra = model.output_scale, model.attends_extra
        self.generator, self.weight = generator, weight

    def forward(
        self,
        source_ids: Tensor,
        decoder_ids: Tensor,
        labels: Tensor,
        source_real: Tensor | None = None,
        segment_ids: Tensor | None = None,
        global_positions: Tensor | None = None,
        loss: LossConfig = CROSS_ENTROPY,
        candidate_ids: Tensor | None = None,
        candidate_real: Tensor | None = None,
        candidate_labels: Tensor | None = None,
        asked: Tensor | None = None,
    ) -> Losses:
        """Summed cross-entropy of the encoder-decoder, and in what is minimised that of the generator too.

        Args:
            source_ids, decoder_ids, labels, source_real, segment_ids, global_positions: as ``Seq2Seq`` takes them.
            loss: what is minimised of both.
            candidate_ids, candidate_real, candidate_labels: ``(B, C)``, as ``MaskedLM`` takes them; None, as for
                held-out data, asks nothing of the generator.
            asked: ``(2,)`` int64, target tokens and candidate tokens of the whole step, over all ranks.

        Returns:
            Sums. ``minimised``, divided by the target tokens of the step, is the mean over target tokens plus
            ``weight`` times the mean over candidate tokens; ``plain`` is the encoder-decoder's alone.
        """
        losses = super().forward(source_ids, decoder_ids, labels, source_real, segment_ids, global_positions, loss)
        if candidate_ids is None:
            return losses
        assert candidate_labels is not None
        assert asked is not None
        generated = self.generator(candidate_ids, candidate_labels, candidate_real, loss=loss).minimised
        targets, candidates = asked.clamp(min=1).to(generated.dtype).unbind()
        return Losses(losses.minimised + generated * (self.weight * targets / candidates), losses.plain)

    def score(self, candidate_ids: Tensor, candidate_real: Tensor | None, candidate_labels: Tensor) -> Tensor:
        """The generator's cross-entropy of each candidate token, ``(B, C)`` float32; 0 where nothing is asked."""
        asked = candidate_labels != IGNORED
        hidden = self.generator.encode(candidate_ids, candidate_real)[asked]  # (N, d)
        pairs = zip(hidden.split(CHUNK), candidate_labels[asked].long().split(CHUNK), strict=True)
        losses = [F.cross_entropy(self.generator.logits(h).float(), want, reduction="none") for h, want in pairs]
        return torch.zeros(asked.shape, device=hidden.device).masked_scatter(asked, torch.cat(losses))
