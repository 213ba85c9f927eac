"""Opening of models for generation: a training run, a model folder of farspan, or a folder of Hugging Face."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from corpora.errors import FarspanError
from corpora.storage.manifest import Manifest
from objectives.api.special_tokens import END, PAD, SpecialTokens
from trainer.conversion.convert import read_model
from trainer.conversion.model_folder import Model, is_model_folder, weights_sha256
from trainer.model.build import make_model
from trainer.model.seq2seq import Seq2Seq
from trainer.recipe import Recipe, read_recipe


@dataclass(frozen=True)
class OpenedModel:
    """A model with its weights, and the recipe of its training if known.

    Attributes:
        path: path as given by the user.
        model: configuration, vocabulary and weights.
        recipe: recipe of the run; None for a folder, and for a run without a stored recipe.
        entry: description of the model in a manifest of predictions.
    """

    path: Path
    model: Model
    recipe: Recipe | None
    entry: Mapping[str, Any]

    @property
    def decoder_positions(self) -> int | None:
        """Rows of the decoder's position table; None without one."""
        assert self.model.config.decoder
        return self.model.config.decoder.positions.limit

    def build(self, device: torch.device, dtype: torch.dtype = torch.float32) -> Seq2Seq:
        """Build the model in evaluation mode."""
        with torch.device("meta"):  # without initial weights, which would be replaced
            model = make_model(self.model.config, self.model.vocabulary.size)
        assert isinstance(model, Seq2Seq)
        model.load_state_dict(self.model.state, assign=True)
        return model.to(device, dtype).eval().requires_grad_(False)

    def check_pairs(self, pairs: Manifest, folder: str) -> None:
        """Check that the model knows the ids of the pairs in ``folder``."""
        known, theirs = self.model.vocabulary.tokenizer_fingerprint, pairs.tokenizer["fingerprint"]
        if known not in (None, theirs):
            raise FarspanError(
                f"{folder}: was made with the tokenizer {theirs[:12]}, the model {self.path} with "
                f"{str(known)[:12]}; make documents and pairs with the model's tokenizer"
            )
        if pairs.tokenizer["vocab_size"] > self.model.vocabulary.size:
            raise FarspanError(
                f"{folder}: its tokenizer has {pairs.tokenizer['vocab_size']:,} ids, the model {self.path} "
                f"{self.model.vocabulary.size:,} rows; make documents and pairs with the model's tokenizer"
            )

    def special_for(self, needed: SpecialTokens, pairs: Manifest) -> SpecialTokens:
        """Return the model's special tokens with those that a task may insert into ``pairs``.

        Tokens that neither the model nor the tokenizer knows have ids beyond the model's vocabulary: a folder of
        Hugging Face has no ``<doc-sep>``, and needs none for pairs about single documents.
        """
        special = self.model.vocabulary.special
        always = dict.fromkeys((PAD, END, self.model.vocabulary.decoder_start))
        if lacking := [name for name in always if name not in special.ids]:
            raise FarspanError(f"{self.path}: the model has no special token {', '.join(lacking)}; give another model")
        return SpecialTokens.merge([special, needed], pairs.tokenizer["vocab_size"])


def open_model(path: Path, checkpoint: str | None = None) -> OpenedModel:
    """Read a model that can generate."""
    model = read_model(path, checkpoint)
    if model.config.decoder is None:
        raise FarspanError(f"{path}: the model has no decoder, so it generates no text; give an encoder-decoder")
    if model.parent.get("kind") == "farspan.checkpoint" and not is_model_folder(path):
        entry = {
            "run": _run_of(path).name,
            "checkpoint": model.parent["name"],
            "sha256": model.parent["weights_sha256"],
        }
        return OpenedModel(path, model, read_recipe(_run_of(path)), {**entry, "vocab_size": model.vocabulary.size})
    digest = weights_sha256(path) if is_model_folder(path) else _digest(model.state)
    entry = {"folder": path.resolve().name, "checkpoint": None, "sha256": digest}
    return OpenedModel(path, model, None, {**entry, "vocab_size": model.vocabulary.size})


def _run_of(path: Path) -> Path:
    """Return the directory of the run that contains ``path``, or ``path`` itself."""
    place = path.resolve()
    while place.name == "checkpoints" or place.name.startswith("step-"):
        place = place.parent
    return place


def _digest(state: Mapping[str, Tensor]) -> str:
    """Hash of the names and values of all weights."""
    digest = sha256()
    for name in sorted(state):
        digest.update(name.encode())
        digest.update(state[name].contiguous().view(torch.uint8).numpy().data)
    return digest.hexdigest()
