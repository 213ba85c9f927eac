"""Hugging Face encoders: weights, maximum input length, and the special tokens around a text.

No code from a model's repository is executed, and only tensors are unpickled.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from corpora.errors import FarspanError
from corpora.tokenizers.huggingface import HuggingFaceTokenizer
from trainer.scorer.encoder_files import EncoderFiles


@dataclass(frozen=True)
class Framing:
    """An encoder's tokenizer and special tokens.

    Attributes:
        tokenizer: tokenizer that adds no special tokens.
        before, after: ``(n,)`` int64, ids of the special tokens before and after a text.
        pad: id of the padding token.
        mask: id of the mask token; None without one.
    """

    tokenizer: HuggingFaceTokenizer
    before: np.ndarray
    after: np.ndarray
    pad: int
    mask: int | None


def described_model(files: EncoderFiles, kind: Any, what: str, cure: str) -> Any:
    """Build the model that the configuration describes, without weights."""
    from transformers import AutoConfig  # slow to import

    try:
        config = AutoConfig.from_pretrained(files.folder, trust_remote_code=False, local_files_only=True)
        with torch.device("meta"):
            return kind.from_config(config, trust_remote_code=False)
    except Exception as error:  # an invalid configuration may make model code raise anything
        raise FarspanError(
            f"encoder {files.folder}: config.json describes no {what} ({_first_line(error)}); {cure}"
        ) from error


def load_weights(files: EncoderFiles, kind: Any, unused: tuple[str, ...] = ()) -> nn.Module:
    """Load a model for inference, in its saved precision."""
    from transformers.utils import logging  # slow to import

    logging.set_verbosity_error()  # what it warns of is checked below
    logging.disable_progress_bar()
    try:
        model, found = kind.from_pretrained(
            files.folder, trust_remote_code=False, local_files_only=True, weights_only=True, output_loading_info=True
        )
    except Exception as error:  # damaged or hostile files may make the library raise anything
        raise FarspanError(
            f"encoder {files.folder}: its weights cannot be loaded ({_first_line(error)}); download it again, or give "
            "another"
        ) from error
    # Any other missing parameter would be random.
    missing = sorted({*found["missing_keys"], *(key for key, *_ in found["mismatched_keys"])})
    missing = [key for key in missing if not any(part in key for part in unused)]
    if missing:
        raise FarspanError(
            f"encoder {files.folder}: the weights lack {len(missing)} parameters of the model that config.json "
            f"describes ({missing[0]}, ...); the files do not belong together: download the encoder again"
        )
    return model.eval().requires_grad_(False)


def position_count(model: Any) -> int:
    """Return the maximum input length of a headless model; RoBERTa's positions begin after the padding position."""
    most = getattr(model.config, "max_position_embeddings", None)
    table = getattr(getattr(model, "embeddings", None), "position_embeddings", None)
    padding = getattr(table, "padding_idx", None)
    return (most or np.iinfo(np.int32).max) - (0 if padding is None else padding + 1)


def load_framing(files: EncoderFiles) -> Framing:
    """Load the tokenizer and the special tokens that it adds around a text."""
    from transformers import AutoTokenizer  # slow to import

    try:
        loaded = AutoTokenizer.from_pretrained(files.folder, trust_remote_code=False, local_files_only=True)
        backend = loaded.backend_tokenizer
    except Exception as error:  # converters may raise anything
        raise FarspanError(
            f"encoder {files.folder}: its tokenizer cannot be loaded ({_first_line(error)}); give an encoder with a "
            "tokenizer.json"
        ) from error
    tokenizer = HuggingFaceTokenizer(backend.to_str().encode())
    backend.no_padding()  # some encoders are saved with padding
    backend.no_truncation()
    whole = backend.encode("a", add_special_tokens=True)
    text = np.flatnonzero(np.array(whole.special_tokens_mask) == 0)  # positions of the text itself
    ids = np.array(whole.ids, np.int64)
    return Framing(tokenizer, ids[: text[0]], ids[text[-1] + 1 :], loaded.pad_token_id or 0, loaded.mask_token_id)


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]
