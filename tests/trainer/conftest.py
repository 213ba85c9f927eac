"""The seed of every test, and rows and a generator for joint training."""

import pytest
import torch

from tests.trainer.joint_parts import make_generator, make_rows
from trainer.scorer.models import Generator


@pytest.fixture(autouse=True)
def _one_seed() -> None:
    torch.manual_seed(0)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> str:
    return make_rows(tmp_path_factory.mktemp("joint") / "corpus")


@pytest.fixture
def generator() -> Generator:
    return make_generator()
