"""Hugging Face masked language models, run in two steps: states of all positions, logits of masked ones."""

from __future__ import annotations

import fnmatch
import json
import os
from typing import Any

import torch
from torch import Tensor, nn

from corpora.errors import FarspanError
from trainer.scorer.encoder import EncoderFiles, describe_model, load_weights, position_count

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
    stored = _stored_names(files.folder)
    if stored and not head & stored:
        raise FarspanError(f"encoder {files.folder}: its weights have no head that predicts tokens; {_CURE}")
    return position_count(model.base_model)


def _stored_names(folder: str) -> set[str]:
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
