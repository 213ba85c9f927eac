"""Loading of tokenizers from files, folders and names, of whichever kind they are."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from corpora.errors import FarspanError
from corpora.reporting import note
from corpora.storage import files
from corpora.storage.files import read_user_file, read_user_json
from corpora.storage.stores.connect import is_reachable
from corpora.tokenizers.huggingface import HuggingFaceTokenizer, special_roles
from corpora.tokenizers.protocol import Tokenizer
from corpora.tokenizers.sentencepiece import SentencePieceTokenizer


def load_tokenizer(name_or_path: str | os.PathLike[str]) -> Tokenizer:
    """Load a SentencePiece ``.model``, a ``tokenizer.json``, a folder with either, or a Hugging Face name.

    Files and folders may be on any file system. If a folder has both, its ``tokenizer.json`` is read, because its ids
    are those of the Hugging Face model beside it. Nothing is unpickled, and no code from a model's repository runs.

    Raises:
        FarspanError: no such file or folder, not a tokenizer, or a name that the hub does not have or cannot deliver.
    """
    path = os.fspath(name_or_path)
    if not files.is_local(path):
        return _load_remote(path)
    try:
        if os.path.isdir(path):
            return _load_folder(path)
        if os.path.isfile(path):
            data = read_user_file(path)
            is_json = data.lstrip()[:1] == b"{"
            return _huggingface(data) if is_json else _sentencepiece(data)
    except FarspanError as error:
        raise FarspanError(f"tokenizer {path}: {error}") from error
    in_folder = os.path.isdir(os.path.dirname(path))  # my/tokenizer, where my/ is here: no name of the hub
    if in_folder or path.endswith((".json", ".model")) or path.startswith((".", "/", "~")) or path.count("/") > 1:
        raise FarspanError(f"tokenizer {path}: no such file or folder")
    note(f"tokenizer {path}: no such file or folder here; asking Hugging Face for this name")
    return _load_pretrained(path)


def load_tokenizer_of(artefact: str) -> Tokenizer:
    """Load the tokenizer in the folder of an artefact, never from a model hub."""
    folder = os.path.join(artefact, "tokenizer")
    if not files.walk(folder):
        raise FarspanError(f"{artefact} has no folder `tokenizer`; copy the artefact again, as a whole")
    return load_tokenizer(folder)


def _load_remote(path: str) -> Tokenizer:
    with tempfile.TemporaryDirectory() as folder:
        copy = os.path.join(folder, os.path.basename(path))
        for file in files.walk(path):
            files.write_bytes(os.path.join(copy, os.path.basename(file)), files.read_bytes(file))
        if not os.path.isdir(copy) and files.exists(path):
            files.write_bytes(copy, files.read_bytes(path))
        try:
            return load_tokenizer(copy)
        except FarspanError as error:
            raise FarspanError(str(error).replace(copy, path)) from error


def _load_folder(folder: str) -> Tokenizer:
    names = sorted(os.listdir(folder))
    if "tokenizer.json" in names:
        configs = [
            _read_json(os.path.join(folder, name))
            for name in ("special_tokens_map.json", "tokenizer_config.json")
            if name in names
        ]
        data = read_user_file(os.path.join(folder, "tokenizer.json"))
        return _huggingface(data, tuple(special_roles(*configs).items()) if configs else None)
    if "tokenizer_config.json" in names or {"vocab.json", "merges.txt"} <= set(names) or "vocab.txt" in names:
        return _load_pretrained(folder)
    models = [name for name in names if name.endswith(".model")]
    if len(models) == 1:
        return _sentencepiece(read_user_file(os.path.join(folder, models[0])))
    raise FarspanError(
        f"the folder holds {len(models)} .model files and no tokenizer.json; name the tokenizer's file itself"
    )


# A job loads the same contents several times: from the user's files, from its artefact and for the artefact's card.
@lru_cache(maxsize=2)
def _huggingface(data: bytes, roles: tuple[tuple[str, str], ...] | None = None) -> Tokenizer:
    return HuggingFaceTokenizer(data, None if roles is None else dict(roles))


@lru_cache(maxsize=2)
def _sentencepiece(data: bytes) -> Tokenizer:
    return SentencePieceTokenizer(data)


def _load_pretrained(name: str) -> Tokenizer:
    """Load with Hugging Face's own loader, which downloads from the hub and converts older formats."""
    from transformers import AutoTokenizer  # slow to import, rarely needed

    try:
        offline = os.path.isdir(name) or not is_reachable()  # its client would try for most of a minute
        loaded = AutoTokenizer.from_pretrained(name, trust_remote_code=False, local_files_only=offline)
    except Exception as error:  # whatever the hub, the network or a converter raises
        reason = str(error).strip().partition("\n")[0]
        if os.path.isdir(name):
            raise FarspanError(
                f"the folder holds no tokenizer.json, and Hugging Face could not load its tokenizer ({reason}); copy "
                "the model's tokenizer.json or its other tokenizer files into it"
            ) from error
        raise FarspanError(
            f"tokenizer {name!r} is not a file or folder, and Hugging Face could not load it ({reason}); check the "
            "name and the network, or give a local tokenizer.json, .model or folder"
        ) from error
    backend = getattr(loaded, "backend_tokenizer", None)
    if backend is None:
        raise FarspanError(f"tokenizer {name!r} has no fast (tokenizer.json) form; convert it to one first")
    tokens = {field: value for field, value in loaded.special_tokens_map.items() if isinstance(value, str)}
    return HuggingFaceTokenizer(backend.to_str().encode(), special_roles(tokens))


def _read_json(path: str) -> Mapping[str, Any]:
    values = read_user_json(path)
    if not isinstance(values, dict):
        raise FarspanError(f"{os.path.basename(path)}: not a JSON object; restore it or leave it out")
    return values
