"""A small model, its optimiser and their checkpoints, and what can be done to the files."""

import torch
from torch import nn
from torch.optim import AdamW

from trainer.checkpoint.checkpoints import Checkpoints
from trainer.checkpoint.selection import CheckpointConfig
from trainer.parallel.distributed import World

IDENTITY = {"run": {"seed": 1}, "betas": (0.9, 0.98)}


class Run:
    """A model that learns, its optimiser, and the checkpoints of ``directory``."""

    def __init__(self, directory, kind=AdamW, identity=IDENTITY, **config):
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(5, 4), nn.LayerNorm(4), nn.Linear(4, 2))
        self.optimizer = kind(self.model.parameters(), lr=0.1)
        self.said = []
        settings = CheckpointConfig(**{"asynchronous": False, **config})
        self.checkpoints = Checkpoints(directory, settings, World.alone(), identity, {"size": 5}, self.said.append)

    def restore(self):
        return self.checkpoints.restore(self.model, self.optimizer)

    def update(self, number):
        torch.manual_seed(number)
        self.model(torch.randn(3, 5)).square().sum().backward()
        self.optimizer.step()
        self.optimizer.zero_grad()

    def save(self, step):
        return self.checkpoints.save(step, 10 * step, self.model, self.optimizer)

    def states(self):
        return [*self.model.state_dict().values(), *(v for of in self.optimizer.state.values() for v in of.values())]


def save(directory, step, **config):
    """A start of the run that makes one update and the checkpoint of ``step``."""
    run = Run(directory, **config)
    with run.checkpoints:
        run.restore()
        run.update(step)
        return run.save(step)


def load(directory, **options):
    run = Run(directory, **options)
    with run.checkpoints:
        return run.restore(), run


def steps(directory):
    return sorted(path.name for path in directory.glob("step-*"))


def shard(path, part):
    (file,) = (path / part).iterdir()
    return file


def truncate(path):
    path.write_bytes(path.read_bytes()[:-7])


def flip(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
