"""The inverse of rendering with sentinels: nothing leaves a source without being in its target."""

from __future__ import annotations

import numpy as np

from corpora.errors import FarspanError
from corpora.ragged import Ragged
from objectives.examples import Examples
from objectives.masks import IN_SOURCE, IN_TARGET, VISIBLE, MaskBatch
from objectives.special_tokens import SpecialTokens


def reconstruct(
    examples: Examples, masks: MaskBatch, special: SpecialTokens, *, begin: bool, end: bool, separator: str | None
) -> Ragged:
    """The text tokens of every row, from its source and target: the inverse of ``rendering.render_sentinels``.

    Mask rows say only where spans lie and which are shown where. This is a check, not a hot path.

    Args:
        examples: what ``render_sentinels`` made of ``masks``, with the same ``begin``, ``end`` and ``separator``.

    Returns:
        Rows of int32 tokens.

    Raises:
        FarspanError: a sentinel is missing, text is in neither source nor target, or either ends too early or too late.
    """
    between = special.ids.get(separator or "", -1)
    rows = []
    for row in range(len(examples)):
        source = examples.source_ids[row, begin : examples.source_lengths[row] - end]
        # An empty target has neither begin nor end.
        target = examples.target_ids[row, begin : max(examples.target_lengths[row] - end, begin)]
        spans = zip(masks.span_starts[row], masks.span_lengths[row], masks.span_flags[row], strict=True)
        try:
            rows.append(_text(source[source != between], target, list(spans), special.sentinels))
        except FarspanError as error:
            raise FarspanError(f"sequence {examples.sequence_ids[row].tobytes().hex()}: {error}") from None
    return Ragged.from_rows(rows, np.int32)


def _text(
    source: np.ndarray, target: np.ndarray, spans: list[tuple[int, int, int]], sentinels: np.ndarray
) -> np.ndarray:
    pieces = []
    position = at = said = marker = 0  # places in the text, the source, the target; sentinels seen
    for start, length, flags in spans:
        pieces.append(source[at : at + start - position])
        at += start - position
        if flags & IN_SOURCE:
            if at >= len(source) or source[at] != sentinels[marker]:
                raise FarspanError(f"sentinel {marker} is not in the source at token {start}")
            at += 1
            if flags & IN_TARGET:
                if said >= len(target) or target[said] != sentinels[marker]:
                    raise FarspanError(f"sentinel {marker} is not in the target before token {start}")
                said += 1
            marker += 1
        visible = flags & VISIBLE or flags == 0
        if not visible and not flags & IN_TARGET:
            raise FarspanError(f"tokens {start}:{start + length} are in neither source nor target")
        pieces.append(source[at : at + length] if visible else target[said : said + length])
        at += length if visible else 0
        said += length if flags & IN_TARGET else 0
        position = start + length
    if at > len(source) or said != len(target):
        raise FarspanError("source or target does not end where the spans do")
    return np.concatenate([*pieces, source[at:]])
