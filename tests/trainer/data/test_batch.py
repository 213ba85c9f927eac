"""Batches: their inputs, and the batch of a rank that has none left."""

from __future__ import annotations

import torch

from objectives.api.examples import IGNORED
from trainer.data.batch import Batch

SOURCE = torch.arange(12, dtype=torch.int32).reshape(3, 4)
LABELS = torch.tensor([[5, IGNORED], [6, 7], [IGNORED, IGNORED]], dtype=torch.int32)


def test_a_full_batch_counts_what_is_predicted_and_makes_the_first_position_global():
    batch = Batch.full(SOURCE, LABELS, LABELS + 1)
    assert (batch.source_tokens, batch.target_tokens) == (12, 3)
    assert batch.global_positions is not None
    assert batch.global_positions.tolist() == [[True, False, False, False]] * 3
    assert Batch.full(SOURCE, LABELS, None, global_first=False).global_positions is None


def test_a_masked_language_model_gets_no_decoder_ids():
    assert "decoder_ids" not in Batch.full(SOURCE, SOURCE, None).inputs
    assert "decoder_ids" in Batch.full(SOURCE, LABELS, LABELS).inputs


def test_a_batch_without_targets_has_the_same_shapes_and_no_loss():
    batch = Batch.full(SOURCE, LABELS, LABELS + 1)
    empty = batch.without_targets()
    assert (empty.source_tokens, empty.target_tokens) == (0, 0)
    assert (empty.labels == IGNORED).all()
    assert {name: x.shape for name, x in empty.inputs.items() if x is not None} == {
        name: x.shape for name, x in batch.inputs.items() if x is not None
    }


def test_changes_reach_every_tensor_and_leave_none_alone():
    batch = Batch.full(SOURCE, LABELS, None, global_first=False).map(lambda x: x + 1)
    assert batch.source_ids.equal(SOURCE + 1)
    assert batch.labels.equal(LABELS + 1)
    assert batch.source_padding_mask is batch.global_positions is None
