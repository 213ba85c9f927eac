"""Lookup of a scorer's model, and its validation before the weights are loaded."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from hashlib import sha256
from pathlib import Path

import torch
from torch import nn

from corpora.errors import FarspanError
from corpora.tokenizers.load import load_tokenizer
from objectives.api.special_tokens import BEGIN, END, MASK, PAD, SpecialTokens
from trainer.checkpoint.files import checkpoints_in
from trainer.checkpoint.trained_model import TrainedModel, find_trained
from trainer.conversion.model_folder import is_model_folder
from trainer.model.masked_lm import MaskedLM
from trainer.scorer.encoder import find_encoder, load_framing
from trainer.scorer.masked_lm import describe_positions, load_masked_lm

_UNLIMITED = 2**31 - 1


@dataclass(frozen=True)
class FoundModel:
    """A masked language model whose weights are not loaded yet.

    Attributes:
        path: path given by the user.
        fingerprint: hash of weights, configuration and vocabulary.
        tokenizer_fingerprint: fingerprint of the model's tokenizer.
        special: special tokens of the model; ``<bos>`` and ``<eos>`` only if they framed texts in training.
        positions: maximum input length.
        load: function that loads the model in float32 on the CPU.
    """

    path: str
    fingerprint: str
    tokenizer_fingerprint: str
    special: SpecialTokens
    positions: int
    load: Callable[[], nn.Module]


def find_model(path: str) -> FoundModel:
    """Find a masked language model and check what can be checked without its weights."""
    if is_model_folder(Path(path)):
        raise FarspanError(
            f"scorer {path}: a model folder of `farspan convert` does not record the tokens around texts in training; "
            "give its source, a folder of Hugging Face or a run, or train from it"
        )
    return _find_run(path) if checkpoints_in(Path(path)) else _find_pretrained(path)


def _find_run(path: str) -> FoundModel:
    trained = find_trained(Path(path))
    if trained.config.decoder is not None:
        if trained.generator is None:
            raise FarspanError(
                f"scorer {path}: the run trains an encoder-decoder without a generator; give a run of the encoder-only "
                "objective, cross_document, or a run with a generator section"
            )
        trained = trained.generator
    if MASK not in trained.special.ids:
        raise FarspanError(
            f"scorer {path}: the run has no special token {MASK}; give a run of an objective that masks tokens"
        )
    identity = [trained.weights_sha256, asdict(trained.config), trained.tokenizer_fingerprint]
    return FoundModel(
        path,
        sha256(json.dumps([*identity, dict(trained.special.ids)], sort_keys=True).encode()).hexdigest(),
        trained.tokenizer_fingerprint,
        trained.special,
        trained.config.encoder.positions.limit or _UNLIMITED,
        partial(_load_trained, trained),
    )


def _load_trained(trained: TrainedModel) -> MaskedLM:
    with torch.device("meta"):  # without initial weights, which would be replaced
        model = MaskedLM(trained.config, trained.special.vocab_size)
    try:
        model.load_state_dict(trained.weights(), assign=True)
    except RuntimeError as error:
        raise FarspanError(f"{trained.path}: the weights do not fit the configuration beside them ({error})") from None
    return model


def _find_pretrained(path: str) -> FoundModel:
    if path.startswith((".", "/", "~")) and not os.path.isdir(path):
        raise FarspanError(
            f"scorer {path}: no such folder; give a run of `farspan train` with an encoder-only model, or a masked "
            "language model of Hugging Face"
        )
    files = find_encoder(path)
    positions, framing = describe_positions(files), load_framing(files)
    if framing.mask is None:
        raise FarspanError(f"scorer {path}: its tokenizer has no mask token; give a masked language model")
    if max(len(framing.before), len(framing.after)) > 1:
        raise FarspanError(
            f"scorer {path}: its tokenizer puts {len(framing.before)} tokens before a text and {len(framing.after)} "
            "after it; give a model with at most one each"
        )
    ids = {PAD: framing.pad, MASK: framing.mask}
    ids |= {name: int(edge[0]) for name, edge in ((BEGIN, framing.before), (END, framing.after)) if len(edge)}
    tokenizer = load_tokenizer(files.folder)  # loaded as for a corpus, so that fingerprints can be compared
    special = SpecialTokens(ids, tokenizer.vocab_size)
    return FoundModel(
        path, files.fingerprint, tokenizer.fingerprint, special, positions, partial(load_masked_lm, files)
    )
