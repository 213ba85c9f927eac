"""Tests of state as tensors, and of checkpoints written and read by several ranks."""

import math
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch
import torch._dynamo  # in every fork otherwise, where optimisers first need it
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

import trainer.checkpoint.checkpoints
from corpora.errors import FarspanError
from tests.trainer import small_run
from tests.trainer.distributed_ranks import on_ranks
from trainer.checkpoint.checkpoints import Checkpoints
from trainer.checkpoint.files import file_facts, newest_first
from trainer.checkpoint.selection import CheckpointConfig
from trainer.checkpoint.state import (
    check_fit,
    copy_to_cpu,
    describe_stored_tensors,
    load_tensors,
    model_tensors,
    not_finite,
    optimizer_tensors,
    read_tensors,
    restore_optimizer,
    shards_of,
    sort_metadata,
    tensors_to_write,
    write_tensors,
)
from trainer.optim.optimizer import OptimizerConfig, build_optimizer
from trainer.parallel.distributed import World


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
    states = {"model": model_tensors(model), "optimizer": optimizer_tensors(model, optimizer)}
    written = {name: copy_to_cpu(tensors) for name, tensors in states.items()}
    for name, tensors in written.items():
        write_tensors(tmp_path / name, tensors, None)
        assert shards_of(tmp_path / name, 0)
        assert not shards_of(tmp_path / name, 1)
        assert {key: value.shape for key, value in describe_stored_tensors(tmp_path / name).items()} == {
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
    assert describe_stored_tensors(tmp_path / "nowhere") == {}
    (tmp_path / "shard-00001-model-00001-of-00001.safetensors").write_bytes(b"not a header")
    with pytest.raises(FarspanError, match=r"holds no tensors that farspan wrote \(.*; restore it"):
        describe_stored_tensors(tmp_path)


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
        torch.testing.assert_close(into, tensors, rtol=0, atol=0)
    assert len(found) == 1


class Run(small_run.Run):
    """A model shared in ``mode``, its optimiser, and the checkpoints of ``directory``."""

    def __init__(self, world, directory, kind="adamw", mode="fsdp", asynchronous=True):
        torch.manual_seed(0)
        # 3 outputs: on 4 ranks, one has nothing of the last layer
        model: Any = nn.Sequential(nn.Linear(5, 7), nn.LayerNorm(7), nn.Linear(7, 3))
        if kind == "adafactor":  # sharded, its first steps are slow
            model = model[:1]
        if mode == "ddp":
            model = DistributedDataParallel(model)
        elif mode in ("fsdp", "hybrid"):
            shape = (world.size,) if mode == "fsdp" else (2, world.size // 2)
            names = ("shard",) if mode == "fsdp" else ("copy", "shard")
            mesh = init_device_mesh("cpu", shape, mesh_dim_names=names)
            for layer in model:
                fully_shard(layer, mesh=mesh)
            fully_shard(model, mesh=mesh)
        self.model, self.said = model, []
        self.optimizer = build_optimizer(model, OptimizerConfig(name=kind, learning_rate=0.1))
        config = CheckpointConfig(asynchronous=asynchronous, keep=2)
        self.checkpoints = Checkpoints(Path(directory), config, world, {"seed": 1}, {"size": 5}, self.said.append)

    def state(self):
        """Every tensor, whole, as nested lists."""
        bare = self.model.module if isinstance(self.model, DistributedDataParallel) else self.model
        tensors = bare.state_dict() | optimizer_tensors(self.model, self.optimizer)
        return {
            name: (value.full_tensor() if isinstance(value, DTensor) else value).tolist()
            for name, value in tensors.items()
        }


def write(world, directory, written):
    """Checkpoints of updates 1 and 2, written while training goes on to 3; the state after 2 by mode and kind."""
    found = {}
    for mode, kind in written:
        run = Run(world, f"{directory}/{mode}-{kind}", kind, mode)
        with run.checkpoints:
            assert run.restore() is None
            for number in (1, 2):
                run.update(number)
                run.save(number)
            found[mode, kind] = run.state()
            run.update(3)
    return found


def go_on(world, directory, written, mode):
    """The states that ranks restore in ``mode`` from each of ``written``."""
    found = {}
    for name in written:
        run = Run(world, f"{directory}/{'-'.join(name)}", name[1], mode)
        with run.checkpoints:
            assert run.restore() == 2
            found[name] = run.state()
    return found


def test_any_number_of_ranks_in_any_mode_goes_on_from_any(tmp_path):
    of_two = [("fsdp", "adamw"), ("ddp", "adamw"), ("fsdp", "adafactor"), ("fsdp", "muon")]
    written = on_ranks(2, write, tmp_path, of_two)[0] | on_ranks(4, write, tmp_path, [("hybrid", "adamw")])[0]
    for (mode, kind), state in written.items():
        folder = tmp_path / f"{mode}-{kind}/step-00000002/model"
        assert sum(bool(shards_of(folder, rank)) for rank in range(4)) == (4 if mode == "hybrid" else 2)
        weights = {name: value.tolist() for name, value in load_tensors(folder).items()}
        assert weights.items() <= state.items()
    assert go_on(World.alone(), tmp_path, written, "alone") == written
    assert on_ranks(3, go_on, tmp_path, written, "fsdp")[2] == written
    of_ddp = on_ranks(2, go_on, tmp_path, of_two[:1], "ddp")[1]
    assert of_ddp == {name: written[name] for name in of_two[:1]}


def bytes_held(world, directory, modes):
    """Bytes that this rank copies for a checkpoint, and those of all weights and their Adam state."""
    found = {}
    for mode in modes:
        run, held = Run(world, f"{directory}/{mode}", "adamw", mode), []

        def counted(tensors, held=held):
            copies = copy_to_cpu(tensors)
            local = [value.to_local() if isinstance(value, DTensor) else value for value in copies.values()]
            held.append(sum(value.nbytes for value in local))
            return copies

        with patch.object(trainer.checkpoint.checkpoints, "copy_to_cpu", counted), run.checkpoints:
            run.restore()
            run.update(1)
            run.save(1)
        whole = sum(parameter.numel() for parameter in run.model.parameters())
        found[mode] = sum(held), 4 * (3 * whole + len(list(run.model.parameters())))
    return found


def test_every_rank_copies_its_share_of_the_state_for_a_checkpoint(tmp_path):
    by_rank = on_ranks(4, bytes_held, tmp_path, ["ddp", "fsdp", "hybrid"])
    for mode in ("ddp", "fsdp", "hybrid"):
        held, (whole, *_) = [of[mode][0] for of in by_rank], [of[mode][1] for of in by_rank]
        # of the last layer's 3 rows, one of 4 ranks has none; the steps of fsdp's Adam are whole on every rank
        assert sum(held) == whole, mode
        assert max(held) < whole / 2, mode


def refused(call):
    with pytest.raises(FarspanError) as error:
        call()
    return str(error.value)


def fail(world, directory):
    """The message of each fault, as this rank has it."""
    said = {}
    run = Run(world, f"{directory}/run", asynchronous=False)
    run.restore()
    run.update(0)
    said["two"] = refused(Run(world, f"{directory}/run").restore)
    for step in (1, 2):
        run.save(step)
    weight: Any = run.model[0].weight
    before = weight.to_local().clone()
    with torch.no_grad():
        if world.rank == 1:
            weight.to_local()[0, 0] = torch.nan
        said["nan"] = refused(lambda: run.save(3))
        weight.to_local().copy_(before)
    full = OSError("no space left") if world.rank == 1 else None
    with patch.object(trainer.checkpoint.checkpoints, "file_facts", side_effect=full, wraps=file_facts):
        said["full"] = refused(lambda: run.save(3))
    run.checkpoints.finish()
    if world.first:
        shards_of(Path(f"{directory}/run/step-00000002/optimizer"), 1)[0].write_bytes(b"")
    again = Run(world, f"{directory}/run")
    with again.checkpoints:
        assert again.restore() == 1
    said["damaged"] = again.said
    said["apart"] = refused(Run(world, f"{directory}/of-{world.rank}").restore)
    return said


def test_a_fault_on_one_rank_is_an_error_on_all(tmp_path):
    first, second = on_ranks(2, fail, tmp_path)
    (damaged,) = first.pop("damaged")
    assert "step-00000002 is damaged (shard-00002-" in damaged
    assert second.pop("damaged") == []
    for said in (first, second):
        assert "ranks [1] do not see what rank 0 writes" in said.pop("apart")
    assert first == second
    assert "is in use by process" in first["two"]
    assert "after step 3, model 0.weight holds values that are not finite" in first["nan"]
    assert "step 3 could not be written" in first["full"]
    assert "no space left" in first["full"]
    assert [path.name for path in newest_first(tmp_path / "run")] == ["step-00000002", "step-00000001"]
