"""A model from wherever one may lie."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from corpora.errors import FarspanError
from objectives.special_tokens import END, SpecialTokens
from trainer.checkpoint_files import checkpoints_in, read_manifest
from trainer.conversion.hugging_face import is_hugging_face_folder, read_hugging_face
from trainer.conversion.model_folder import Model, is_model_folder, read_model_folder
from trainer.conversion.vocabulary import Vocabulary
from trainer.trained_model import find_trained


def read_model(path: Path) -> Model:
    """Read a model folder of farspan, a folder of Hugging Face, or the newest checkpoint of a run.

    Raises:
        FarspanError: ``path`` is none of these, or is damaged.
    """
    if is_model_folder(path):
        return read_model_folder(path)
    if is_hugging_face_folder(path):
        return read_hugging_face(path)
    if checkpoints_in(path):
        return _read_run(path)
    raise FarspanError(
        f"{path} holds no model; give a model folder of farspan, a folder of Hugging Face with its config.json, or a "
        "run of `farspan train`"
    )


def _read_run(path: Path) -> Model:
    trained = find_trained(path)
    manifest = read_manifest(trained.path)
    # every special token, those that no text was framed by included: a target ends by one
    special = SpecialTokens(manifest["vocabulary"]["special_tokens"], manifest["vocabulary"]["size"])
    data = manifest["identity"].get("data")
    start = str(data.get("decoder_start", END)) if isinstance(data, Mapping) else END
    parent = {
        "kind": "farspan.checkpoint",
        "name": trained.path.name,
        "step": manifest["step"],
        "weights_sha256": trained.weights_sha256,
    }
    vocabulary = Vocabulary.of(special, trained.tokenizer_fingerprint, start)
    return Model(trained.config, vocabulary, trained.weights(), parent=parent)
