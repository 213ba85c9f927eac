"""Masked language models that score, and the generator of joint training: their lookup, and checks before loading."""

from __future__ import annotations

import fnmatch
import json
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from corpora.errors import FarspanError
from corpora.keyed import make_key
from corpora.schemas.corpus import Corpus
from corpora.tokenizers.load import load_tokenizer
from objectives.api.special_tokens import BEGIN, DOCUMENT_SEPARATOR, END, MASK, PAD, SpecialTokens
from trainer.checkpoint.files import checkpoints_in
from trainer.checkpoint.trained_model import TrainedModel, find_trained
from trainer.conversion.model_folder import is_model_folder
from trainer.model.build import build_model
from trainer.model.config import GeneratorConfig, ModelConfig
from trainer.model.masked_lm import MaskedLM
from trainer.scorer.encoder import (
    EncoderFiles,
    describe_model,
    find_encoder,
    load_framing,
    load_weights,
    position_count,
)

_CURE = "give one that was saved as a masked language model (RobertaForMaskedLM, BertForMaskedLM, ...)"


class PretrainedMaskedLM(nn.Module):
    """A model of ``AutoModelForMaskedLM`` with the methods of ``MaskedLM`` that score tokens.

    Architectures name their heads differently, but all apply them position by position to the first output of the
    backbone. So the whole model serves as the head, with its backbone replaced by one that returns given states.
    """

    def __init__(self, model: Any) -> None:
        super().__init__()
        self._backbone, self._fixed = model.base_model, _FixedStates()
        ids = torch.arange(3, device=model.device)[None]
        middle = model(input_ids=ids).logits[0, 1:2]
        setattr(model, model.base_model_prefix, self._fixed)
        self._head = model
        if not torch.allclose(self.logits(self.encode(ids)[0, 1:2]), middle, atol=1e-4, rtol=1e-3):
            raise FarspanError(f"{type(model).__name__} predicts more than one position at a time; {_CURE}")

    def encode(self, source_ids: Tensor, source_padding_mask: Tensor | None = None) -> Tensor:
        """Encode ``(B, S)`` int32 or int64 ids with their ``(B, S)`` bool mask; returns ``(B, S, d)``."""
        output = self._backbone(
            input_ids=source_ids, attention_mask=None if source_padding_mask is None else source_padding_mask.long()
        )
        self._fixed.kind = type(output)
        return output[0]

    def logits(self, hidden: Tensor) -> Tensor:
        """Map hidden states ``(N, d)`` to logits ``(N, V)``."""
        self._fixed.states = hidden[None]
        return self._head(input_ids=None).logits[0]


class _FixedStates(nn.Module):
    """A backbone that ignores its input and returns ``states`` in the form of the real backbone's output."""

    kind: Any
    states: Tensor

    def forward(self, *_: Any, **__: Any) -> Any:
        return self.kind(last_hidden_state=self.states)


def load_masked_lm(files: EncoderFiles) -> PretrainedMaskedLM:
    """Load the model with its weights, in float32 on the CPU."""
    from transformers import AutoModelForMaskedLM  # slow to import

    with torch.inference_mode():
        return PretrainedMaskedLM(load_weights(files, AutoModelForMaskedLM).float())


def describe_positions(files: EncoderFiles) -> int:
    """Return the maximum input length of the masked language model, without loading its weights."""
    from transformers import AutoModelForMaskedLM  # slow to import

    model = describe_model(files, AutoModelForMaskedLM, "masked language model", _CURE)
    backbone = model.base_model_prefix + "."
    head = {name for name in model.state_dict() if not name.startswith(backbone)}
    stored = _read_stored_names(files.folder)
    if stored and not head & stored:
        raise FarspanError(f"encoder {files.folder}: its weights have no head that predicts tokens; {_CURE}")
    return position_count(model.base_model)


def _read_stored_names(folder: str) -> set[str]:
    """Read the names of weights from the headers of safetensors files; empty without such files.

    BERT's oldest files name the weight and bias of a norm gamma and beta.
    """
    names: set[str] = set()
    for name in fnmatch.filter(os.listdir(folder), "model*.safetensors"):
        with open(os.path.join(folder, name), "rb") as file:
            header = file.read(int.from_bytes(file.read(8), "little"))
        try:
            names |= json.loads(header).keys()
        except ValueError as error:
            raise FarspanError(f"encoder {folder}: {name} is damaged ({error}); download it again") from None
    return {name.replace(".gamma", ".weight").replace(".beta", ".bias") for name in names}


_UNLIMITED = 2**31 - 1


@dataclass(frozen=True)
class FoundModel:
    """A masked language model whose weights are not loaded yet."""

    path: str  # given by the user
    fingerprint: str  # hash of weights, configuration and vocabulary
    tokenizer_fingerprint: str
    special: SpecialTokens  # <bos> and <eos> only if they framed texts in training
    positions: int  # maximum input length
    load: Callable[[], MaskedLM | PretrainedMaskedLM]  # in float32 on the CPU


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


@dataclass(frozen=True)
class Generator:
    """A masked language model to be trained together with an encoder-decoder."""

    model: MaskedLM  # in float32 on the CPU
    special: SpecialTokens
    positions: int | None  # maximum input length
    identity: str | None  # of the initial weights; None if they are random


def open_generator(config: GeneratorConfig, corpus: Corpus, seed: int) -> Generator:
    """Load the generator, or initialise it randomly for the token ids of ``corpus``."""
    entry = corpus.manifest.tokenizer
    if config.initial is None:
        assert config.model is not None
        names = [DOCUMENT_SEPARATOR, MASK] if corpus.manifest.config["room_per_document"] else [MASK]
        special = SpecialTokens.append(entry["vocab_size"], entry["owned_tokens"], names)
        key = make_key(seed, "generator")  # a different seed, because its embeddings would otherwise equal the model's
        drawn = build_model(config.model, special.vocab_size, int.from_bytes(key[:4], "little"))
        assert isinstance(drawn, MaskedLM)
        return Generator(drawn, special, config.model.encoder.positions.limit, None)
    try:
        initial = find_model(config.initial)
    except FarspanError as error:
        raise FarspanError(f"generator.initial: {error}") from error
    if initial.tokenizer_fingerprint != entry["fingerprint"]:
        raise FarspanError(
            f"generator.initial {config.initial} has the tokenizer with fingerprint {initial.tokenizer_fingerprint}, "
            f"{corpus.folder} {entry['fingerprint']}; give a generator trained on a corpus with this tokenizer"
        )
    model = initial.load()
    if not isinstance(model, MaskedLM):
        raise FarspanError(
            f"generator.initial {config.initial} is not a run of `farspan train`; give one with an encoder alone, or "
            "score with it as data.objective.scorer"
        )
    return Generator(model, initial.special, initial.positions, initial.fingerprint)


def generator_config(config: GeneratorConfig) -> ModelConfig:
    """Read the generator's configuration without its weights."""
    if config.model is not None:
        return config.model
    assert config.initial is not None
    trained = find_trained(Path(config.initial))
    return (trained.generator or trained).config
