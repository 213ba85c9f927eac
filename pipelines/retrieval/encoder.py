"""Text encoders: any BERT-like Hugging Face model, Contriever by default.

A text's vector depends on the other texts of a call only through padding, which changes the order of float additions:
components agree to 1e-5 of the largest in float32, and vectors to a cosine of 0.999 in the two 16-bit precisions. The
same call on the same machine gives the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np
import torch
from torch import nn

from corpora.errors import FarspanError
from corpora.storage.ragged import Ragged
from pipelines.retrieval.options import EncoderOptions, Precision
from trainer.scorer.encoder import (
    EncoderFiles,
    Framing,
    describe_model,
    find_encoder,
    load_framing,
    load_weights,
    position_count,
)
from trainer.scorer.inference import BATCH_TOKENS, batch_by_length, choose_device, pin_threads


@lru_cache(maxsize=1)
def load_encoder(options: EncoderOptions) -> Encoder:
    """Load an encoder, once per process. No code from the model's repository runs, and only tensors are unpickled."""
    return Encoder(find_encoder(options.name), options)


def resolve(options: EncoderOptions, files: EncoderFiles) -> EncoderOptions:
    """Resolve the maximum length, limited by the encoder's own, and ``auto`` precision, without loading weights."""
    from transformers import AutoModel  # slow to import

    described = describe_model(files, AutoModel, "model that can be built", "give another")
    max_length = min(options.max_length, position_count(described))
    _text_tokens(files, max_length, load_framing(files))
    return replace(options, max_length=max_length, precision=_resolve_precision(options.precision))


def device_count() -> int | None:
    """Count the CUDA devices that encode; None if the CPU does."""
    return torch.cuda.device_count() if torch.cuda.is_available() else None


def _resolve_precision(precision: Precision) -> Precision:
    """Resolve ``auto`` to this machine's precision."""
    if precision != "auto":
        return precision
    return "float16" if torch.cuda.is_available() else "float32"


def _text_tokens(files: EncoderFiles, max_length: int, framing: Framing) -> int:
    """Return the number of text tokens among ``max_length``; the others are the special tokens around a text."""
    special = len(framing.before) + len(framing.after)
    if max_length <= special:
        raise FarspanError(
            f"--max-length {max_length}: the {special} special tokens of encoder {files.name} leave no room for text; "
            f"give at least {special + 1}"
        )
    return max_length - special


class Encoder:
    """A model with its pooling and a ``tokenizer`` that adds no special tokens, for ``max_text_tokens`` per text."""

    def __init__(self, files: EncoderFiles, options: EncoderOptions) -> None:
        self.files, self._options = files, options
        self._device = choose_device("cuda" if torch.cuda.is_available() else "cpu")
        self._batch_tokens = BATCH_TOKENS[self._device.type]
        from transformers import AutoModel  # slow to import

        model = load_weights(files, AutoModel, unused=("pooler",))
        max_length = min(options.max_length, position_count(model))
        self._model = model.to(self._device, getattr(torch, _resolve_precision(options.precision)))
        self._framing = load_framing(files)
        self.tokenizer = self._framing.tokenizer
        self.max_text_tokens = _text_tokens(files, max_length, self._framing)

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        """``(n, d)`` float32 vectors of n texts, each cut to its first ``max_text_tokens`` tokens."""
        return self.encode_ids(self.tokenizer.encode(texts))

    def encode_ids(self, ids: Ragged, report: Callable[[int], None] = lambda done: None) -> np.ndarray:
        """``(n, d)`` float32 vectors of n texts given as ids, without special tokens, each cut to ``max_text_tokens``.

        A text without tokens gets the vector of the special tokens alone, or zeros if the encoder has none; ``report``
        is called with the number of texts done so far.
        """
        vectors = np.zeros((len(ids), self.files.dimension), np.float32)
        lengths = np.minimum(ids.lengths, self.max_text_tokens) + len(self._framing.before) + len(self._framing.after)
        done = int((lengths == 0).sum())
        with pin_threads(self._options.threads), torch.inference_mode():
            for rows in batch_by_length(lengths, self._batch_tokens):
                tokens, mask = self._pad(ids, rows, lengths[rows])
                vectors[rows] = self._run(torch.from_numpy(tokens), torch.from_numpy(mask))
                done += len(rows)
                report(done)
        return vectors

    def _pad(self, ids: Ragged, rows: np.ndarray, lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Tokens with special tokens and padding, and the attention mask: ``(rows, longest)`` int64."""
        before, after = self._framing.before, self._framing.after
        tokens = np.full((len(rows), lengths.max()), self._framing.pad, np.int64)
        mask = np.zeros_like(tokens)
        for i, (row, length) in enumerate(zip(rows, lengths, strict=True)):
            text = ids[row][: length - len(before) - len(after)]
            tokens[i, :length] = np.concatenate([before, text, after])
            mask[i, :length] = 1
        return tokens, mask

    def _run(self, tokens: torch.Tensor, mask: torch.Tensor) -> np.ndarray:
        tokens, mask = tokens.to(self._device), mask.to(self._device)
        # (rows, longest, d)
        states = self._model(input_ids=tokens, attention_mask=mask).last_hidden_state.float()
        if self._options.pooling == "cls":
            pooled = states[:, 0]
        else:
            weights = mask.unsqueeze(-1).float()  # (rows, longest, 1)
            pooled = (states * weights).sum(1) / weights.sum(1)
        if self._options.normalize:
            pooled = nn.functional.normalize(pooled, dim=1)
        return pooled.cpu().numpy()
