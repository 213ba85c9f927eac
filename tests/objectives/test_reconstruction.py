"""Damage to source, target or masks is found where the text is put together again."""

from dataclasses import replace

import numpy as np
import pytest

from corpora.errors import FarspanError
from corpora.ragged import Ragged
from objectives.base import CorpusFacts
from objectives.masks import IN_SOURCE
from objectives.span import Span
from tests.factories import OWNED, VOCAB, make_sequences

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
        (replace(EXAMPLES, source_ids=without(EXAMPLES.source_ids, SPECIAL.sentinels[1])), MASKS, "not in the source"),
        (replace(EXAMPLES, target_ids=without(EXAMPLES.target_ids, SPECIAL.sentinels[1])), MASKS, "not in the target"),
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
