"""Damage to source, target or masks is found where the text is put together again."""

from dataclasses import replace

import numpy as np
import pytest

from corpora.errors import FarspanError
from corpora.storage.ragged import Ragged
from objectives.api.examples import IGNORED
from objectives.api.masks import IN_SOURCE, IN_TARGET, REPLACED
from objectives.api.protocol import CorpusFacts
from objectives.api.special_tokens import MASK, SpecialTokens
from objectives.rendering.layout import Layout
from objectives.rendering.reconstruct import reconstruct, reconstruct_labels
from objectives.rendering.render import render_labels, render_masked
from objectives.span import Span
from tests.factories import OWNED, VOCAB, make_sequences
from tests.objectives.handmade import masks_of

BATCH = make_sequences([60], 2)
OBJECTIVE = Span()
SPECIAL = OBJECTIVE.validate(CorpusFacts(VOCAB, OWNED, 70, 60, 2))
MASKS = OBJECTIVE.mask(BATCH, bytes(16))
EXAMPLES = OBJECTIVE.render(BATCH, MASKS, SPECIAL)


def without(ids: np.ndarray, token: int) -> np.ndarray:
    return np.where(ids == token, 5, ids)


@pytest.mark.parametrize(
    ("examples", "masks", "message"),
    [
        (
            replace(EXAMPLES, source_ids=without(EXAMPLES.source_ids, SPECIAL.sentinels[1])),
            MASKS,
            "marker 1 is not in the source",
        ),
        (
            replace(EXAMPLES, target_ids=without(EXAMPLES.target_ids, SPECIAL.sentinels[1])),
            MASKS,
            "marker 1 is not in the target",
        ),
        (replace(EXAMPLES, target_lengths=EXAMPLES.target_lengths - 1), MASKS, "does not end where the spans do"),
        (replace(EXAMPLES, source_lengths=EXAMPLES.source_lengths * 0 + 9), MASKS, "not in the source"),
        (
            EXAMPLES,
            replace(
                MASKS, span_flags=Ragged(np.full_like(MASKS.span_flags.values, IN_SOURCE), MASKS.span_flags.offsets)
            ),
            "in neither source nor target",
        ),
    ],
)
def test_damage_is_named(examples, masks, message):
    with pytest.raises(FarspanError, match=f"sequence {BATCH.sequence_id(0).hex()}: .*{message}"):
        OBJECTIVE.reconstruct(examples, masks, SPECIAL)


MASKED = SpecialTokens.append(VOCAB, OWNED, [MASK])
LAYOUT = Layout()
REPLACED_ROW = masks_of(BATCH, [[(3, 2, REPLACED | IN_TARGET), (9, 1, IN_SOURCE | IN_TARGET)]])
LABELLED = render_labels(BATCH, REPLACED_ROW, MASKED, LAYOUT, mask=MASK)


def moved(labels: np.ndarray) -> np.ndarray:
    return np.roll(labels, 1, axis=1)


@pytest.mark.parametrize(
    ("examples", "masks", "message"),
    [
        (replace(LABELLED, labels=moved(LABELLED.labels)), REPLACED_ROW, "token 3 has no label, unlike its span"),
        (
            replace(LABELLED, labels=np.where(LABELLED.labels == IGNORED, 7, LABELLED.labels)),
            REPLACED_ROW,
            "token 0 has a label, unlike its span",
        ),
        (
            replace(LABELLED, source_lengths=np.array([9], np.int32)),
            REPLACED_ROW,
            "source has 7 tokens, spans reach to",
        ),
        (
            replace(LABELLED, labels=np.full_like(LABELLED.labels, IGNORED)),
            masks_of(BATCH, [[(3, 2, IN_SOURCE)]]),
            "token 3 is neither in the source nor a label",
        ),
    ],
)
def test_damage_to_labels_is_named(examples, masks, message):
    with pytest.raises(FarspanError, match=f"sequence {BATCH.sequence_id(0).hex()}: .*{message}"):
        reconstruct_labels(examples, masks, MASKED, LAYOUT)


def test_replacements_are_looked_for():
    examples = render_masked(BATCH, REPLACED_ROW, MASKED, LAYOUT, mask=MASK)
    text = reconstruct(examples, REPLACED_ROW, MASKED, LAYOUT, mask=MASK)
    assert np.array_equal(text[0], BATCH.tokens[0])
    with pytest.raises(FarspanError, match="tokens 3:5 are not shown as their replacements"):
        others = Ragged.from_rows([[5, 6]], np.int32)
        reconstruct(examples, replace(REPLACED_ROW, replacements=others), MASKED, LAYOUT, mask=MASK)
