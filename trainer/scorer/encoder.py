"""Hugging Face encoders: their files, weights, maximum input length, and the special tokens around a text.

No code from a model's repository is executed, and only tensors are unpickled.
"""

from __future__ import annotations

import fnmatch
import hashlib
import json
import os
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from corpora.errors import FarspanError, first_line
from corpora.storage.stores.connect import is_reachable
from corpora.tokenizers.huggingface import HuggingFaceTokenizer


@dataclass(frozen=True)
class Framing:
    """An encoder's tokenizer, which adds no special tokens, and the ids of these."""

    tokenizer: HuggingFaceTokenizer
    before: np.ndarray  # (n,) int64, before a text
    after: np.ndarray  # (n,) int64, after it
    pad: int
    mask: int | None


def describe_model(files: EncoderFiles, kind: Any, what: str, cure: str) -> Any:
    """Build the model that the configuration describes, without weights."""
    from transformers import AutoConfig  # slow to import

    try:
        config = AutoConfig.from_pretrained(files.folder, trust_remote_code=False, local_files_only=True)
        with torch.device("meta"):
            return kind.from_config(config, trust_remote_code=False)
    except Exception as error:  # an invalid configuration may make model code raise anything
        raise FarspanError(
            f"encoder {files.folder}: config.json describes no {what} ({first_line(error)}); {cure}"
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
            f"encoder {files.folder}: its weights cannot be loaded ({first_line(error)}); download it again, or give "
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
            f"encoder {files.folder}: its tokenizer cannot be loaded ({first_line(error)}); give an encoder with a "
            "tokenizer.json"
        ) from error
    tokenizer = HuggingFaceTokenizer(backend.to_str().encode())
    backend.no_padding()  # some encoders are saved with padding
    backend.no_truncation()
    whole = backend.encode("a", add_special_tokens=True)
    text = np.flatnonzero(np.array(whole.special_tokens_mask) == 0)  # positions of the text itself
    ids = np.array(whole.ids, np.int64)
    return Framing(tokenizer, ids[: text[0]], ids[text[-1] + 1 :], loaded.pad_token_id or 0, loaded.mask_token_id)


_WEIGHTS = ("model*.safetensors", "pytorch_model*.bin")  # in the loader's order
_SETTINGS = (".json", ".txt", ".model")  # configuration and vocabulary
_CURE = (
    "give the folder of a BERT-like encoder as Hugging Face saves it: config.json, tokenizer.json (or vocab.txt), and "
    "model.safetensors or pytorch_model.bin"
)


@dataclass(frozen=True)
class EncoderFiles:
    """The local files of an encoder."""

    folder: str
    name: str  # on the hub, or last part of the folder
    dimension: int  # width of the encoder's vectors
    fingerprint: str  # hex sha256 of names and contents of configuration, vocabulary and weights


def find_encoder(name_or_folder: str) -> EncoderFiles:
    """Find an encoder by folder, or by its name on the Hugging Face hub, from which it is downloaded once."""
    is_folder = os.path.isdir(name_or_folder)
    folder = os.path.realpath(name_or_folder) if is_folder else _download(name_or_folder)
    names = sorted(name for name in os.listdir(folder) if os.path.isfile(os.path.join(folder, name)))
    settings = [name for name in names if name.endswith(_SETTINGS)]
    weights = next((found for pattern in _WEIGHTS if (found := fnmatch.filter(names, pattern))), [])
    vocabulary = {"tokenizer.json", "vocab.txt", "vocab.json"}.intersection(names)
    parts = {"config.json": "config.json" in names, "tokenizer": vocabulary, "weights": weights}
    if missing := [name for name, there in parts.items() if not there]:
        raise FarspanError(f"encoder {name_or_folder}: the folder has no {' and no '.join(missing)}; {_CURE}")
    digest = hashlib.sha256()
    for name in settings + weights:
        with open(os.path.join(folder, name), "rb") as file:
            digest.update(f"{name} {hashlib.file_digest(file, 'sha256').hexdigest()}\n".encode())
    name = os.path.basename(folder) if is_folder else name_or_folder
    return EncoderFiles(folder, name, _dimension(name_or_folder, folder), digest.hexdigest())


def _download(name: str) -> str:
    # as in load_tokenizer: a name on the hub has at most one slash
    if name.startswith((".", "/", "~")) or name.count("/") > 1:
        raise FarspanError(f"encoder {name}: no such folder; {_CURE}")
    from huggingface_hub import snapshot_download  # slow to import

    try:
        for weights in _WEIGHTS:
            patterns = [*(f"*{kind}" for kind in _SETTINGS), weights]
            folder = snapshot_download(name, allow_patterns=patterns, local_files_only=not is_reachable())
            if fnmatch.filter(os.listdir(folder), weights):
                break
        return folder
    except Exception as error:  # the hub or the network may raise anything
        raise FarspanError(
            f"encoder {name!r} is not a local folder, and the Hugging Face hub did not provide it "
            f"({first_line(error)}); check name and network, or, without a network, run `hf download {name} "
            "--local-dir FOLDER` where there is one, and give the folder"
        ) from error


def _dimension(given: str, folder: str) -> int:
    from transformers import AutoConfig  # slow to import

    try:
        config = AutoConfig.from_pretrained(folder, trust_remote_code=False, local_files_only=True)
        size = config.hidden_size
    except (OSError, ValueError, KeyError, AttributeError, json.JSONDecodeError) as error:
        raise FarspanError(
            f"encoder {given}: config.json does not describe a known encoder ({first_line(error)}); {_CURE}"
        ) from error
    if config.is_encoder_decoder or getattr(config, "is_decoder", False):
        raise FarspanError(f"encoder {given}: config.json describes a model with a decoder; {_CURE}")
    return int(size)
