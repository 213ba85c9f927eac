"""Inputs of generation that do not fit together are refused by name."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from corpora.errors import FarspanError
from corpora.storage.ragged import Ragged
from trainer.generation.sources import Generated, Sources

IDS = torch.zeros(2, 5, dtype=torch.int64)


def test_samples_are_rows_unless_rows_are_given():
    assert len(Sources(source_ids=IDS)) == 2
    assert Sources(source_ids=IDS).encoder_rows.tolist() == [0, 1]
    several = Sources(source_ids=IDS, rows=np.array([1, 1, 0]))
    assert len(several) == 3
    assert several.encoder_rows.tolist() == [1, 1, 0]
    assert len(Sources(source_ids=IDS, rows=np.zeros(0, np.int64))) == 0
    assert len(Generated([np.zeros(3, np.int32)], np.zeros(1, np.float32))) == 1


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"source_padding_mask": torch.ones(2, 4, dtype=torch.bool)}, r"source_padding_mask is \(2, 4\), source_ids"),
        ({"segment_ids": torch.ones(1, 5)}, r"segment_ids is \(1, 5\), source_ids \(2, 5\); align them"),
        ({"global_positions": torch.ones(5, dtype=torch.bool)}, r"global_positions is \(5,\)"),
        ({"prompts": Ragged.from_rows([[1]], np.int32)}, "1 prompts for 2 samples; give one for each"),
        ({"seeds": np.zeros(3, np.uint64), "rows": np.array([0, 1])}, "3 seeds for 2 samples"),
        ({"rows": np.array([0, 2, 1])}, "sample 1 has row 2, but there are 2 encoder rows"),
        ({"rows": np.array([1, 0, -1])}, "sample 2 has row -1, but there are 2 encoder rows"),
    ],
)
def test_fields_of_different_lengths_are_refused(fields, said):
    with pytest.raises(FarspanError, match=said):
        Sources(source_ids=IDS, **fields)
