"""The context of a batch against its definition, row by row."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.trainer.model.dense import right_padded
from trainer.model.context import Context, make_context


@given(
    chosen=st.lists(st.lists(st.booleans(), min_size=7, max_size=7), min_size=1, max_size=4),
    lengths=st.lists(st.integers(0, 7), min_size=4, max_size=4),
    padded=st.booleans(),
)
def test_global_positions_are_gathered_in_order_without_padding(chosen, lengths, padded):
    asked = torch.tensor(chosen)
    real = right_padded(lengths[: len(chosen)], 7) if padded else None
    found = make_context(real, None, asked).globals
    expected = [
        [place for place, wanted in enumerate(row) if wanted and (real is None or real[number, place])]
        for number, row in enumerate(chosen)
    ]
    if not any(expected):
        assert found is None
        return
    assert found.at.shape[1] == max(map(len, expected))  # no wider than it must be
    for number, places in enumerate(expected):
        assert found.at[number][found.padding_mask[number]].tolist() == places
        assert (found.at[number][~found.padding_mask[number]] == 0).all()
        assert found.chosen[number].nonzero().flatten().tolist() == places


def test_documents_are_counted_over_the_batch():
    assert make_context(segments=torch.tensor([[0, 0, 1], [0, 1, 2]])).documents == 3
    assert make_context(segments=torch.full((2, 3), -1)).documents == 1  # rows of padding alone
    assert make_context().documents == 1


def test_a_context_of_nothing_is_the_default():
    assert make_context() == Context()
    real = right_padded([3, 1], 3)
    assert make_context(real).padding_mask is real
    assert make_context(global_positions=torch.zeros(2, 3, dtype=torch.bool)).globals is None
    assert make_context(global_positions=torch.zeros(0, 3, dtype=torch.bool)).globals is None
