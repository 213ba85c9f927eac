"""Tests of the model in a run's checkpoints, as scorers, conversions and predictions read it."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from corpora.errors import FarspanError
from objectives.api.examples import Examples
from tests.trainer.toy import SPECIAL, ToySource, toy_recipe, train_quietly, weights_of
from trainer.checkpoint.run_files import read_sealed, write_sealed
from trainer.checkpoint.trained_model import find_trained, vocabulary_of


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A recipe and the folder of its run, with checkpoints of steps 1 and 2."""
    folder = tmp_path_factory.mktemp("trained")
    recipe = toy_recipe(folder, checkpoint_every=1, dry_run=False)
    train_quietly(recipe, source=ToySource(), until=2)
    return recipe, folder


@pytest.fixture
def copied(made, tmp_path) -> Path:
    return shutil.copytree(made[1], tmp_path / "run")


def manifests(run: Path) -> list[Path]:
    return sorted(run.glob("checkpoints/step-*/checkpoint.json"))


def test_the_newest_checkpoint_describes_the_model_and_holds_its_weights(made):
    recipe, folder = made
    found = find_trained(folder)
    assert found.path.name == "step-00000002"
    assert found.config == recipe.model
    assert found.tokenizer_fingerprint == "toy tokenizer"
    assert found.special.vocab_size == SPECIAL.vocab_size
    assert "<bos>" not in found.special.ids  # no text of the toy source is framed
    torch.testing.assert_close(found.weights(), weights_of(recipe), rtol=0, atol=0)
    first = find_trained(folder / "checkpoints/step-00000001")
    assert first.weights_sha256 != found.weights_sha256 == find_trained(folder).weights_sha256


def test_a_damaged_checkpoint_is_passed_over_and_named_if_there_is_no_other(copied):
    first, second = manifests(copied)
    second.write_text("{")
    assert find_trained(copied).path == first.parent
    values = read_sealed(first)
    write_sealed(first, {**values, "vocabulary": {**values["vocabulary"], "size": 0}})
    with pytest.raises(FarspanError, match=r"no readable checkpoint \(step-00000002: .*; step-00000001: checkpoint"):
        find_trained(copied)


@pytest.mark.parametrize("key", ["vocabulary", "selection"])
def test_a_checkpoint_without_a_key_is_damaged(copied, key):
    for path in manifests(copied):
        values = read_sealed(path)
        del values[key]
        write_sealed(path, values)
    with pytest.raises(FarspanError, match=rf"no readable checkpoint \(.*{key}"):
        find_trained(copied)


def test_a_folder_without_checkpoints_is_named(tmp_path):
    with pytest.raises(FarspanError, match=r"no readable checkpoint \(none at all\); name another run"):
        find_trained(tmp_path)


def test_weights_that_a_checkpoint_does_not_name_are_not_read(copied):
    trained = find_trained(copied)
    (weights,) = (trained.path / "model").iterdir()
    shutil.copy(weights, weights.with_name("a.safetensors"))
    with pytest.raises(FarspanError, match=r"is damaged \(model/a.safetensors is not in the manifest\)"):
        trained.weights()


@pytest.mark.parametrize(
    ("text", "frame"),
    [([1, 9, 2], ["<bos>", "<eos>"]), ([9, 2], ["<eos>"]), ([1, 9], ["<bos>"]), ([9, 1, 2, 9], []), ([2, 9, 1], [])],
)
def test_the_frame_is_what_the_text_begins_and_ends_with(text, frame):
    """Padding behind it is no part of it."""
    shown = Examples(
        sequence_ids=np.zeros((1, 16), np.uint8), source_ids=np.array([[*text, 0, 0]], np.int32),
        source_lengths=np.array([len(text)], np.int32), target_ids=np.zeros((1, 0), np.int32),
        target_lengths=np.zeros(1, np.int32),
    )  # fmt: skip
    found = vocabulary_of("fingerprint", SPECIAL, shown)
    assert found["frame"] == frame
    assert found["special_tokens"] == dict(SPECIAL.ids)
    assert (found["size"], found["tokenizer_fingerprint"]) == (SPECIAL.vocab_size, "fingerprint")
