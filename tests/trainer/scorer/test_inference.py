"""Forward passes: which rows go together, and on how many threads."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from trainer.scorer.inference import batches, choose_device, pin_threads


@given(st.lists(st.integers(0, 50), max_size=40), st.integers(1, 200))
def test_batches_hold_every_row_once_within_the_budget(lengths, tokens):
    lengths = np.array(lengths, np.int64)
    found = list(batches(lengths, tokens))
    assert sorted(row for rows in found for row in rows.tolist()) == np.flatnonzero(lengths).tolist()
    assert all(len(rows) == 1 or len(rows) * lengths[rows].max() <= tokens for rows in found)
    assert (np.diff(lengths[np.concatenate([np.empty(0, np.int64), *found])]) <= 0).all()


def test_threads_are_pinned_for_a_while():
    before = torch.get_num_threads()
    with pin_threads(1):
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == before
    with pin_threads(None):
        assert torch.get_num_threads() == before


def test_a_rank_asks_its_own_device(monkeypatch):
    """Also in a process that it started to load data."""
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 8)
    monkeypatch.setattr("os.getpid", lambda: 21)
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    assert choose_device("cuda") == torch.device("cuda", 5)
    monkeypatch.setenv("LOCAL_RANK", "3")
    assert choose_device("cuda") == torch.device("cuda", 3)
    assert choose_device("cpu") == torch.device("cpu")
