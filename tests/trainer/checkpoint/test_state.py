"""Tensors of model and optimizer, and the files that hold them."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from corpora.errors import FarspanError
from trainer.checkpoint.state import (
    check_fit,
    copied,
    load_tensors,
    model_tensors,
    not_finite,
    optimizer_tensors,
    read_tensors,
    restore_optimizer,
    shards_of,
    sort_metadata,
    stored_tensors,
    tensors_to_write,
    write_tensors,
)


def model_and_optimizer():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
    return model, torch.optim.AdamW(model.parameters(), lr=0.1)


@given(st.lists(st.integers(0, 300), max_size=20), st.integers(1, 5))
@settings(deadline=None)
def test_every_tensor_is_written_by_one_rank_and_evenly(sizes, ranks):
    tensors = {f"t{number}": torch.zeros(size) for number, size in enumerate(sizes)}
    selected = [tensors_to_write(tensors, rank, ranks) for rank in range(ranks)]
    assert sorted(name for own in selected for name in own) == sorted(tensors)
    loads = [sum(tensor.nbytes for tensor in own.values()) for own in selected]
    assert max(loads) - min(loads) <= 4 * max(sizes, default=0)


def test_tensors_come_back_from_their_files(tmp_path):
    model, optimizer = model_and_optimizer()
    assert optimizer_tensors(model, optimizer) == {}
    model(torch.randn(5, 3)).sum().backward()
    optimizer.step()
    written = {"model": copied(model_tensors(model)), "optimizer": copied(optimizer_tensors(model, optimizer))}
    for name, tensors in written.items():
        write_tensors(tmp_path / name, tensors, None)
        assert shards_of(tmp_path / name, 0)
        assert not shards_of(tmp_path / name, 1)
        assert {key: value.shape for key, value in stored_tensors(tmp_path / name).items()} == {
            key: value.shape for key, value in tensors.items()
        }
    with torch.no_grad():  # a copy is not the model itself
        model[0].weight.zero_()
    torch.testing.assert_close(load_tensors(tmp_path / "model"), written["model"], rtol=0, atol=0)
    other, fresh = model_and_optimizer()
    read_tensors(tmp_path / "model", model_tensors(other), None)
    restore_optimizer(other, fresh, tmp_path / "optimizer", None)
    torch.testing.assert_close(model_tensors(other), written["model"], rtol=0, atol=0)
    torch.testing.assert_close(optimizer_tensors(other, fresh), written["optimizer"], rtol=0, atol=0)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_value_that_is_not_finite_is_named(value):
    good = {"a": torch.ones(3), "empty": torch.ones(0), "whole": torch.ones(2, dtype=torch.int64)}
    assert not_finite(good) == []
    assert not_finite({**good, "b": torch.tensor([1.0, value, 2.0])}) == ["b"]


@pytest.mark.parametrize(
    ("into", "said"),
    [
        ({"a": torch.ones(2), "b": torch.ones(1)}, "does not fit what the recipe builds: b"),
        ({}, "does not fit what the recipe builds: a"),
        ({"a": torch.ones(3)}, r"a of shape \[2\], not \[3\]"),
    ],
)
def test_other_tensors_than_stored_are_named(tmp_path, into, said):
    write_tensors(tmp_path / "model", {"a": torch.ones(2)}, None)
    check_fit(tmp_path / "model", {"a": torch.zeros(2)})
    with pytest.raises(FarspanError, match=said):
        check_fit(tmp_path / "model", into)


def test_files_without_tensors_are_refused(tmp_path):
    assert stored_tensors(tmp_path / "nowhere") == {}
    (tmp_path / "shard-00001-model-00001-of-00001.safetensors").write_bytes(b"not a header")
    with pytest.raises(FarspanError, match=r"holds no tensors that farspan wrote \(.*; restore it"):
        stored_tensors(tmp_path)


def test_equal_tensors_are_equal_files_once_their_metadata_is_sorted(tmp_path):
    """Safetensors writes the entries in either order, file by file."""
    tensors = {"ä": torch.arange(6.0).reshape(2, 3), "b": torch.ones(5, dtype=torch.bfloat16)}
    found = set()
    for number in range(20):
        folder = tmp_path / str(number)
        write_tensors(folder, tensors, None)
        (file,) = shards_of(folder, 0)
        sort_metadata(file)
        found.add(file.read_bytes())
        into = {name: torch.zeros_like(tensor) for name, tensor in tensors.items()}
        read_tensors(folder, into, None)
        assert all(torch.equal(into[name], tensors[name]) for name in tensors)
    assert len(found) == 1
