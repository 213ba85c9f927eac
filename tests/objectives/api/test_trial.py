"""Trials: rows that an objective may not change, unusual rows, and a hash of masks."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from objectives.api.protocol import CorpusFacts
from objectives.api.trial import Trial, digest, mask_rows, odd_rows
from objectives.span import Span
from tests.factories import OWNED, VOCAB, make_sequences


def trial(seed: int = 0) -> Trial:
    facts = CorpusFacts(VOCAB, OWNED, sequence_length=70, max_tokens=60, max_documents=2)
    return Trial(lambda options: Span(**(options or {})), make_sequences([60, 40], 2), facts, seed)


def test_an_objective_gets_a_copy_of_the_rows():
    one = trial()
    one.copy().tokens.values[:] = 0
    assert one.batch.tokens.values.any()


def test_the_hash_of_masks_depends_on_the_seed_alone():
    assert digest(trial()) == digest(trial())
    assert digest(trial(1)) != digest(trial())
    assert len(mask_rows(trial().masks)) == 2


def test_a_row_is_named_by_number_size_and_sequence():
    one = trial()
    assert one.row(1) == f"row 1 (40 tokens in 2 documents, sequence {one.batch.sequence_id(1).hex()})"


def test_odd_rows_keep_the_sequence_and_have_one_document():
    one = trial()
    found = dict(odd_rows(one.batch))
    assert [batch.tokens.lengths.tolist() for batch in found.values()] == [[0], [1], [24], [60], [60], []]
    assert len(set(found["a row of one repeated token"].tokens.values.tolist())) == 1
    for batch in found.values():
        assert np.array_equal(batch.sequence_ids, one.batch.sequence_ids[: len(batch)])
        assert (batch.document_starts.lengths <= 1).all()
    assert replace(one, batch=found["a batch without rows"]).masks.span_starts.lengths.tolist() == []
