"""The encoder-decoder, with one token table for source, target and, unless untied, logits."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from trainer.model.config import DecoderConfig, ModelConfig
from trainer.model.context import Context, derive_per_batch, make_context
from trainer.model.decoder import Decoder, EncoderOutput
from trainer.model.encoder import Encoder
from trainer.model.layers.sublayers import TokenTable
from trainer.model.loss import (
    CROSS_ENTROPY,
    LossConfig,
    Losses,
    counted_positions,
    sum_cross_entropy,
    with_noise,
)


class Seq2Seq(nn.Module):
    """An encoder-decoder; calling it computes the loss, ``encode``, ``decode`` and ``logits`` its parts."""

    def __init__(self, config: ModelConfig, decoder: DecoderConfig, vocab_size: int) -> None:
        super().__init__()
        self.tokens = TokenTable(vocab_size, config.width, config.embedding)
        self.encoder = Encoder(config)
        self.decoder = Decoder(config, decoder)
        self.output = None if config.output.tied else nn.Linear(config.width, vocab_size, bias=False)
        self.output_scale = config.width**-0.5 if config.output.scaled else 1.0
        self.attends_extra = decoder.global_cross_attention

    def forward(
        self,
        source_ids: Tensor,
        decoder_ids: Tensor,
        labels: Tensor,
        source_padding_mask: Tensor | None = None,
        segment_ids: Tensor | None = None,
        global_positions: Tensor | None = None,
        loss: LossConfig = CROSS_ENTROPY,
        target_segment_ids: Tensor | None = None,
    ) -> Losses:
        """Compute the summed cross-entropy.

        Args:
            source_ids: ``(B, S)`` int32 or int64, like all ids.
            decoder_ids: ``(B, T)``, the target shifted right by one.
            labels: ``(B, T)``, the target, ``IGNORED`` at padding.
            source_padding_mask: ``(B, S)`` bool, False at padding; None without padding.
            segment_ids: ``(B, S)`` int, the document of each position, -1 at padding; None if documents attend to
                each other.
            global_positions: ``(B, S)`` bool, True at positions with global attention; None if there are none.
            loss: loss function.
            target_segment_ids: ``(B, T)`` int, the example of each position of packed rows, -1 at padding; segments are
                then examples, and positions begin at 0 in each. None without packing.

        Returns:
            Sums; divide by the number of target tokens of the whole step, and the divergence of R3F as its
            configuration says. Evaluation has no R3F.
        """
        context = make_context(source_padding_mask, segment_ids, global_positions, target_segment_ids is not None)
        vectors, noised = self.tokens(source_ids), None

        def last_states(vectors: Tensor) -> Tensor:
            hidden = self.decode(decoder_ids, self._encode(vectors, context), target_segment_ids)
            return self._scale(hidden.flatten(0, 1))

        hidden = last_states(vectors)
        if loss.r3f is not None and self.training:
            noised = last_states(with_noise(vectors, loss.r3f)), counted_positions(labels, loss.r3f).flatten()
        return sum_cross_entropy(hidden, labels.flatten(), self.output_weight, loss=loss, noised=noised)

    def encode(
        self,
        source_ids: Tensor,
        source_padding_mask: Tensor | None = None,
        segment_ids: Tensor | None = None,
        global_positions: Tensor | None = None,
    ) -> EncoderOutput:
        """Encode ``(B, S)`` inputs, as in ``forward``, for ``decode``."""
        return self.encode_in(source_ids, make_context(source_padding_mask, segment_ids, global_positions))

    def encode_in(self, source_ids: Tensor, context: Context) -> EncoderOutput:
        """Encode with an existing context."""
        return self._encode(self.tokens(source_ids), context)

    def _encode(self, vectors: Tensor, context: Context) -> EncoderOutput:
        """Encode ``(B, S, d)`` token vectors."""
        states, extra = self.encoder(vectors, context)
        output = EncoderOutput(states, context.padding_mask)
        packed = context.segments is not None and context.places is not None
        if packed:
            output = output._replace(segments=context.segments)
        if self.attends_extra:
            output = output._replace(extra=extra)
        if not self.attends_extra or context.segments is None:
            return output
        given = (context.segments,), context.most_documents, extra.shape[1]
        return output._replace(
            extra_mask=derive_per_batch(_mask_of_sets, *given),
            extra_segments=derive_per_batch(_sets, *given) if packed else None,
        )

    def decode(self, decoder_ids: Tensor, encoder_output: EncoderOutput, segments: Tensor | None = None) -> Tensor:
        """Decode ``(B, T)`` ids, with ``segments`` as in ``Decoder``; returns hidden states, ``(B, T, d)``."""
        return self.decoder(self.tokens(decoder_ids), encoder_output, segments)

    def logits(self, hidden: Tensor) -> Tensor:
        """Map hidden states ``(B, T, d)`` to logits ``(B, T, V)``."""
        return F.linear(self._scale(hidden), self.output_weight)

    @property
    def output_weight(self) -> Tensor:
        """Weight of the output layer, ``(V, d)``."""
        return self.tokens.weight if self.output is None else self.output.weight

    def _scale(self, hidden: Tensor) -> Tensor:
        return hidden * self.output_scale if self.output_scale != 1.0 else hidden


def _mask_of_sets(segments: Tensor, documents: int, extra: int) -> Tensor:
    """Make the padding mask of G learned tokens (``extra``), a set per document: ``(B, G)`` bool.

    Sets for documents that a row does not have are padding, so that its result does not depend on other rows.
    """
    return _sets(segments, documents, extra) <= segments.amax(1, keepdim=True)


def _sets(segments: Tensor, documents: int, extra: int) -> Tensor:
    """Document of each of G learned tokens, ``(B, G)``."""
    sets = torch.arange(documents, device=segments.device).repeat_interleave(extra // documents)
    return sets.to(segments.dtype).expand(len(segments), -1)
