"""Greedy generation with an encoder-decoder."""

from __future__ import annotations

import torch
from torch import Tensor

from trainer.model.seq2seq import Seq2Seq


@torch.inference_mode()
def generate_greedily(
    model: Seq2Seq,
    source_ids: Tensor,
    source_padding_mask: Tensor | None = None,
    *,
    start: int,
    end: int,
    pad: int,
    max_tokens: int,
) -> Tensor:
    """Generate the token with the largest logit until every row has ended.

    There is no cache: every token costs a decoder pass over all tokens before it. Meant for checks and demonstrations.

    Args:
        model: put into evaluation mode by the caller.
        source_ids, source_padding_mask: ``(B, S)``, as the model takes them.
        start, end, pad: ids that begin the decoder's input, end a text, and fill a row that has ended.
        max_tokens: maximum number of generated tokens.

    Returns:
        ``(B, T)`` int64 without ``start``, ``T <= max_tokens``; a row that ended holds ``end`` and then ``pad``.
    """
    encoder_output = model.encode(source_ids, source_padding_mask)
    ids = source_ids.new_full((len(source_ids), 1), start)
    ended = torch.zeros(len(ids), dtype=torch.bool, device=ids.device)
    while ids.shape[1] <= max_tokens and not ended.all():
        last = model.logits(model.decode(ids, encoder_output)[:, -1])  # (B, V)
        chosen = last.argmax(-1).masked_fill(ended, pad)
        ids = torch.cat([ids, chosen[:, None]], 1)
        ended |= chosen == end
    return ids[:, 1:]
