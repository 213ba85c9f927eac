"""Loading of models from any supported source."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from corpora.errors import FarspanError
from objectives.api.special_tokens import END, SpecialTokens
from trainer.checkpoint.files import checkpoints_in, read_manifest
from trainer.checkpoint.run_files import RECIPE, read_tokenizer
from trainer.checkpoint.selection import find_checkpoint
from trainer.checkpoint.trained_model import TrainedModel, find_trained
from trainer.conversion.hugging_face import (
    hugging_face_sha256,
    is_hugging_face_folder,
    read_hugging_face,
    read_hugging_face_config,
)
from trainer.conversion.model_folder import (
    Model,
    is_model_folder,
    read_model_config,
    read_model_folder,
    weights_sha256,
)
from trainer.conversion.vocabulary import Vocabulary
from trainer.model.config import ModelConfig


def read_model(path: Path, checkpoint: str | None = None) -> Model:
    """Read a model folder of farspan, a folder of Hugging Face, or a checkpoint of a run."""
    _check_is_run(path, checkpoint)
    if is_model_folder(path):
        return read_model_folder(path)
    if is_hugging_face_folder(path):
        return read_hugging_face(path)
    return _read_run(_checkpoint(path, checkpoint))


def model_config(path: Path, checkpoint: str | None = None) -> ModelConfig:
    """Read the configuration of the model that ``read_model`` reads, without the weights.

    In a folder of Hugging Face, the weights may have another output layer than the configuration says.
    """
    _check_is_run(path, checkpoint)
    if is_model_folder(path):
        return read_model_config(path)
    if is_hugging_face_folder(path):
        return read_hugging_face_config(path)
    return find_trained(_checkpoint(path, checkpoint)).config


def model_sha256(path: Path, checkpoint: str | None = None) -> str:
    """Return the sha256 of the weights that ``read_model`` reads, without loading them."""
    if is_model_folder(path):
        return weights_sha256(path)
    if is_hugging_face_folder(path):
        return hugging_face_sha256(path)
    return find_trained(_checkpoint(path, checkpoint)).weights_sha256


def _check_is_run(path: Path, checkpoint: str | None) -> None:
    if checkpoint is not None and (is_model_folder(path) or is_hugging_face_folder(path)):
        raise FarspanError(f"{path}: is not a run, so it has no checkpoint {checkpoint!r}; leave --checkpoint out")


def _checkpoint(path: Path, checkpoint: str | None) -> Path:
    """Return the named checkpoint of a run; the run itself, if its newest readable checkpoint is meant."""
    if not checkpoints_in(path):
        fault = "holds no model" if path.is_dir() else "no folder" if path.exists() else "does not exist"
        raise FarspanError(
            f"{path}: {fault}; give a model folder of farspan, a folder of Hugging Face with its config.json, or a run "
            "of `farspan train`"
        )
    return path if checkpoint in (None, "newest") else find_checkpoint(path, checkpoint)


def _read_run(path: Path) -> Model:
    trained = find_trained(path)
    manifest = read_manifest(trained.path)
    # Every special token, including those that framed no text, because a target ends with one.
    special = SpecialTokens(manifest["vocabulary"]["special_tokens"], manifest["vocabulary"]["size"])
    identity = manifest["identity"].get("data")
    data: Mapping[str, Any] = identity if isinstance(identity, Mapping) else {}
    start = str(data.get("decoder_start", END))
    parent = {
        "kind": "farspan.checkpoint",
        "name": trained.path.name,
        "step": manifest["step"],
        "weights_sha256": trained.weights_sha256,
        **{name: data[name] for name in ("source_length", "target_length") if name in data},
    }
    frame = tuple(manifest["vocabulary"]["frame"])
    vocabulary = Vocabulary.of(special, trained.tokenizer_fingerprint, start, frame)
    return Model(trained.config, vocabulary, trained.weights(), _tokenizer_of(trained), parent)


def _tokenizer_of(trained: TrainedModel) -> Mapping[str, bytes]:
    """Return the tokenizer's files of the run; empty if the checkpoint was moved away from its run."""
    run = trained.path.parent.parent
    tokenizer = read_tokenizer(run, trained.tokenizer_fingerprint) if (run / RECIPE).is_file() else None
    return tokenizer.serialized() if tokenizer else {}
