"""Conversion of a model: reading from any source, adaptation to a recipe, extension of the vocabulary, writing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from corpora.errors import FarspanError
from corpora.settings import override, parse
from corpora.tokenizers.load import load_tokenizer
from objectives.api.mask_set import MaskSet
from objectives.api.special_tokens import END, SpecialTokens
from trainer.checkpoint.files import checkpoints_in, read_manifest
from trainer.checkpoint.run_files import RECIPE, read_tokenizer
from trainer.checkpoint.selection import find_checkpoint
from trainer.checkpoint.trained_model import TrainedModel, find_trained
from trainer.conversion.adapt import TRAINING, adapt, differences
from trainer.conversion.export.files import training_section
from trainer.conversion.hugging_face import (
    hugging_face_sha256,
    is_hugging_face_folder,
    read_hugging_face,
    read_hugging_face_config,
    write_hugging_face,
)
from trainer.conversion.model_folder import (
    CARRIED,
    Model,
    is_model_folder,
    read_model_config,
    read_model_folder,
    weights_sha256,
    write_model_folder,
)
from trainer.conversion.vocabulary import Vocabulary, change_vocabulary
from trainer.model.config import ModelConfig
from trainer.options import Conversion, Convert
from trainer.recipe import load_recipe, read_recipe
from trainer.run_config import RunConfig


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
        if (path / RECIPE).is_file() or (path / "checkpoints").is_dir():
            raise FarspanError(
                f"{path}: this run has no checkpoint yet; let it reach its first one (checkpoint.every), or stop it "
                "with Ctrl-C, which writes one"
            )
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
    first = _initial_folder(trained.path.parent.parent)
    if first is not None:
        parent["carried"] = first.parent.get("carried", {})
    vocabulary = Vocabulary.of(special, trained.tokenizer_fingerprint, start, frame)
    carried = {} if first is None else first.carried
    return Model(trained.config, vocabulary, trained.weights(), _tokenizer_of(trained), parent, carried=carried)


def _initial_folder(run: Path) -> Model | None:
    """Read the model folder that the run started from, if it is still there and carries tensors."""
    recipe = read_recipe(run) if (run / RECIPE).is_file() else None
    path = None if recipe is None or recipe.run.initial_model is None else Path(recipe.run.initial_model)
    return read_model_folder(path) if path and (path / CARRIED).is_file() and is_model_folder(path) else None


def _tokenizer_of(trained: TrainedModel) -> Mapping[str, bytes]:
    """Return the tokenizer's files of the run; empty if the checkpoint was moved away from its run."""
    run = trained.path.parent.parent
    tokenizer = read_tokenizer(run, trained.tokenizer_fingerprint) if (run / RECIPE).is_file() else None
    return tokenizer.serialized() if tokenizer else {}


def command(options: Convert) -> None:
    """Run ``farspan convert``."""
    model = convert(Path(options.source), Path(options.output), options.conversion)
    numbers = sum(tensor.numel() for tensor in model.state.values())
    print(f"{options.output}: {numbers:,} parameters, {model.vocabulary.size:,} rows of tokens")


def convert(source: Path, output: Path, conversion: Conversion) -> Model:
    """Read ``source``, convert it by ``conversion``, write it to ``output``, and return it."""
    if output.exists():  # before any work
        raise FarspanError(f"{output} exists; name a folder that does not, or delete it")
    if conversion.masks is not None and conversion.vocab_size is not None:
        raise FarspanError("--masks and --vocab-size both set the number of token rows; give one of them")
    model = read_model(source, conversion.checkpoint)
    if conversion.tokenizer is not None:
        model = _with_tokenizer(model, conversion.tokenizer)
    model = with_vocabulary(model, _vocabulary(model.vocabulary, conversion))
    target = _target(model.config, conversion)
    if differences(model.config, target, allowed=()):
        model = replace(model, config=target, state=adapt(model.state, model.config, target, model.vocabulary))
    if conversion.to == "huggingface":
        write_hugging_face(model, output, training_section(source))
    else:
        write_model_folder(model, output)
    return model


def with_vocabulary(model: Model, vocabulary: Vocabulary) -> Model:
    """Extend the token table to a row for every id of ``vocabulary``."""
    state = change_vocabulary(model.state, model.vocabulary, vocabulary)
    return replace(model, vocabulary=vocabulary, state=state)


def initial_model(path: Path, config: ModelConfig, vocabulary: Vocabulary, checkpoint: str | None = None) -> Model:
    """Load a run's initial model from any source of ``read_model``, extended to the vocabulary of the run's data."""
    model = read_model(path, checkpoint)
    _check_equal(path, model.config, config, TRAINING)
    return with_vocabulary(model, vocabulary)


def settle_model(model: ModelConfig, run: RunConfig) -> ModelConfig:
    """Return the model that a run trains, by the configuration of its initial model; no weights are read.

    With ``run.adopt_model``, this is the initial model with the dropouts of the recipe's ``model``; else it is
    ``model``, which the initial model must equal.
    """
    if run.initial_model is None:
        return model
    path = Path(run.initial_model)
    try:
        initial = model_config(path, run.initial_checkpoint)
        if run.adopt_model:
            return replace(initial, **{name: getattr(model, name) for name in TRAINING if "." not in name})
    except FarspanError as error:
        raise FarspanError(f"run.initial_model {error}") from error
    _check_equal(path, initial, model, (*TRAINING, "output.*"))
    return model


def _check_equal(path: Path, found: ModelConfig, config: ModelConfig, allowed: tuple[str, ...]) -> None:
    if unequal := differences(found, config, allowed):
        lines = [f"  model.{field}: the model has {theirs!r}, the recipe {ours!r}" for field, theirs, ours in unequal]
        raise FarspanError(
            f"run.initial_model {path} differs from the recipe's model:\n" + "\n".join(lines) + "\n"
            "convert it with `farspan convert --recipe`, which also extends position tables; change the recipe; or "
            "train the model as it is: run.adopt_model=true"
        )


def _target(config: ModelConfig, conversion: Conversion) -> ModelConfig:
    if conversion.recipe is not None:
        return load_recipe(conversion.recipe, conversion.assignments).model
    values = override({"model": config.as_table()}, conversion.assignments)
    if stray := [name for name in values if name != "model"]:
        raise FarspanError(f"--set {stray[0]}...: without --recipe only fields of model can be set, e.g. model.width")
    return parse(ModelConfig, values["model"], "--set", "model")


def _vocabulary(known: Vocabulary, conversion: Conversion) -> Vocabulary:
    if conversion.masks is not None:
        masks = MaskSet(conversion.masks)
        return Vocabulary.of(
            masks.special_tokens, masks.manifest.tokenizer["fingerprint"], known.decoder_start, known.frame
        )
    if conversion.vocab_size is None:
        return known
    needed = max([known.tokenizer_size - 1, *known.special.ids.values()]) + 1
    if conversion.vocab_size < needed:
        raise FarspanError(f"--vocab-size is {conversion.vocab_size}; the model's tokens need at least {needed} rows")
    return replace(known, special=SpecialTokens(known.special.ids, conversion.vocab_size))


def _with_tokenizer(model: Model, path: str) -> Model:
    tokenizer = load_tokenizer(path)
    known = model.vocabulary.tokenizer_fingerprint
    if known not in (None, tokenizer.fingerprint):
        raise FarspanError(
            f"--tokenizer {path} has fingerprint {tokenizer.fingerprint[:12]}, the model's tokenizer has "
            f"{str(known)[:12]}; give the tokenizer that its data was made with"
        )
    vocabulary = replace(model.vocabulary, tokenizer_fingerprint=tokenizer.fingerprint)
    return replace(model, vocabulary=vocabulary, tokenizer=tokenizer.serialized())
