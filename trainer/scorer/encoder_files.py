"""The files of an encoder, checked and fingerprinted before its weights are loaded."""

from __future__ import annotations

import fnmatch
import hashlib
import json
import os
from dataclasses import dataclass

from corpora.errors import FarspanError
from corpora.hugging_face import is_reachable

_WEIGHTS = ("model*.safetensors", "pytorch_model*.bin")  # in the loader's order
_SETTINGS = (".json", ".txt", ".model")  # configuration and vocabulary
_CURE = (
    "give the folder of a BERT-like encoder as Hugging Face saves it: config.json, tokenizer.json (or vocab.txt), and "
    "model.safetensors or pytorch_model.bin"
)


@dataclass(frozen=True)
class EncoderFiles:
    """The local files of an encoder.

    Attributes:
        folder: folder of the files.
        name: name on the hub, or last part of the folder.
        dimension: width of the encoder's vectors.
        fingerprint: hex sha256 of names and contents of configuration, vocabulary and weights.
    """

    folder: str
    name: str
    dimension: int
    fingerprint: str


def find_encoder(name_or_folder: str) -> EncoderFiles:
    """Find an encoder by folder, or by its name on the Hugging Face hub, from which it is downloaded once."""
    is_folder = os.path.isdir(name_or_folder)
    folder = os.path.realpath(name_or_folder) if is_folder else _download(name_or_folder)
    names = sorted(name for name in os.listdir(folder) if os.path.isfile(os.path.join(folder, name)))
    settings = [name for name in names if name.endswith(_SETTINGS)]
    weights = next((found for pattern in _WEIGHTS if (found := fnmatch.filter(names, pattern))), [])
    missing = [
        what
        for what, there in (
            ("config.json", "config.json" in names),
            ("tokenizer", any(name in names for name in ("tokenizer.json", "vocab.txt", "vocab.json"))),
            ("weights", bool(weights)),
        )
        if not there
    ]
    if missing:
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
        reason = str(error).strip().partition("\n")[0]
        raise FarspanError(
            f"encoder {name!r} is not a local folder, and the Hugging Face hub did not provide it ({reason}); check "
            f"name and network, or, without a network, run `hf download {name} --local-dir FOLDER` where there is one, "
            "and give the folder"
        ) from error


def _dimension(given: str, folder: str) -> int:
    from transformers import AutoConfig  # slow to import

    try:
        config = AutoConfig.from_pretrained(folder, trust_remote_code=False, local_files_only=True)
        size = config.hidden_size
    except (OSError, ValueError, KeyError, AttributeError, json.JSONDecodeError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise FarspanError(
            f"encoder {given}: config.json does not describe a known encoder ({reason}); {_CURE}"
        ) from error
    if config.is_encoder_decoder or getattr(config, "is_decoder", False):
        raise FarspanError(f"encoder {given}: config.json describes a model with a decoder; {_CURE}")
    return int(size)
