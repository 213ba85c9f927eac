"""Reading and writing of Hugging Face model folders, which the Auto classes load.

Code in a folder is never run, and only tensors are unpickled.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from fnmatch import fnmatchcase
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from corpora.errors import FarspanError, first_line
from corpora.storage.stores.local_disk import temporary_name
from corpora.tokenizers.load import load_tokenizer
from objectives.api.special_tokens import BEGIN, END, MASK, PAD, SpecialTokens
from trainer.conversion.export.files import generation_settings, model_card, tokenizer_files
from trainer.conversion.family import (
    Family,
    config_class,
    export_config,
    exportable_family,
    family_of,
    list_exported_code,
    nested,
)
from trainer.conversion.model_folder import Model, make_readable
from trainer.conversion.names import load_state, save_state, state_shapes
from trainer.conversion.vocabulary import Vocabulary
from trainer.model.config import ModelConfig

_ROLES = {PAD: "pad_token_id", BEGIN: "bos_token_id", END: "eos_token_id"}
_TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "vocab.txt",
    "spiece.model",
    "sentencepiece.bpe.model",
    "tokenizer.model",
)
_CURE = (
    "give the folder of a model as Hugging Face saves it: config.json, and model.safetensors, its shards with their "
    "index, or pytorch_model.bin"
)


def is_hugging_face_folder(path: Path) -> bool:
    """Return True if ``path`` looks like a model folder of Hugging Face."""
    return (path / "config.json").is_file()


def read_hugging_face(path: Path) -> Model:
    """Read a folder with a model of a supported family."""
    try:
        values = _read_config(path)
        family = family_of(values["model_type"])
        files_of_weights = _weight_files(path)
        stored, digest = _load_files(path, files_of_weights), _digest(path, files_of_weights)
        config = _model_config(family, values | {"tie_word_embeddings": _is_tied(values, stored)})
        layers = config.encoder.layers + (config.decoder.layers if config.decoder else 0)
        if layers > len(stored):  # so many that their names alone may not fit into memory
            raise FarspanError(f"config.json: {layers:,} layers, but there are {len(stored):,} tensors; {_CURE}")
        names = family.name_map(config)
        stored, carried, facts = split_carried(family, stored, values)
        stored = _with_prefix(stored, {name for tensors in names.values() for name in tensors.names})
        vocabulary, files = _read_vocabulary(path, values)
        state = load_state(names, stored, _shapes(config, vocabulary.size), family.IGNORED)
        generation = _read_generation(path)
    except FarspanError as error:
        raise FarspanError(f"{path}: {error}") from None
    parent = {"kind": values["model_type"], "name": path.resolve().name, "weights_sha256": digest, **facts}
    return Model(config, vocabulary, state, files, parent, generation, carried)


def read_hugging_face_config(path: Path) -> ModelConfig:
    """Read the configuration of a folder's model; its weights, which are not read, may untie the output layer."""
    try:
        values = _read_config(path)
        return _model_config(family_of(values["model_type"]), values)
    except FarspanError as error:
        raise FarspanError(f"{path}: {error}") from None


def write_hugging_face(model: Model, path: Path, training: str = "") -> None:
    """Write a folder that ``AutoModelForSeq2SeqLM`` loads, atomically; an encoder's for ``AutoModelForMaskedLM``."""
    if path.exists():
        raise FarspanError(f"{path} exists; name a folder that does not, or delete it")
    vocabulary, special = model.vocabulary, model.vocabulary.special
    family = exportable_family(model.config)
    values = export_config(family, model.config, vocabulary.size, special.ids)
    values["dtype"] = "float32"
    if model.config.decoder:
        values["decoder_start_token_id"] = special.ids[vocabulary.decoder_start]
    values.pop("forced_eos_token_id", None)  # a setting of generation
    if model.carried:
        values = _merge(values, model.parent.get("carried", {}))
    ids = {field: special.ids[name] for name, field in _ROLES.items() if name in special.ids}
    temporary = Path(temporary_name(str(path)))
    temporary.mkdir(parents=True)
    _write_json(temporary / "config.json", values | ids)
    if model.config.decoder:
        _write_json(temporary / "generation_config.json", generation_settings(model, ids))
    code = list_exported_code(values)
    card = model_card(model, values["architectures"][0], code)
    (temporary / "README.md").write_text("\n".join(filter(None, [card, training])), "utf-8")
    for name, content in (tokenizer_files(model) | code).items():
        (temporary / name).write_bytes(content)
    stored = save_state(family.name_map(model.config), model.state)
    if whole := nested(family):
        stored = whole.stub(model.config) | dict(model.carried) | stored
    save_file(stored, temporary / "model.safetensors", metadata={"format": "pt"})
    make_readable(temporary)
    os.replace(temporary, path)


def _read_config(path: Path) -> dict[str, Any]:
    try:
        values = _read_json(path / "config.json")
        kind = values["model_type"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise FarspanError(f"config.json cannot be read ({error}); {_CURE}") from None
    family = family_of(kind)
    try:
        # with every field that the file leaves out
        whole: dict[str, Any] = config_class(kind).from_dict(values).to_dict()
        outer = nested(family)
        return outer.complete(whole) if outer else whole
    except Exception as error:  # a wrong value may make the library raise anything
        reason = " ".join(str(error).split())
        raise FarspanError(f"config.json does not describe a {kind} model ({reason}); {_CURE}") from None


def _read_json(file: Path) -> Any:
    try:
        return json.loads(file.read_bytes())
    except RecursionError:
        raise ValueError("its brackets are nested too deep") from None


def _read_generation(path: Path) -> dict[str, Any]:
    """Read generation settings, from their own file or, in older folders, from ``config.json``."""
    from transformers import GenerationConfig  # slow to import

    # stored with the vocabulary, or not settings
    own = {*_ROLES.values(), "decoder_start_token_id", "transformers_version"}
    known = {name for name in vars(GenerationConfig()).keys() - own if not name.startswith(("_", "output_"))}
    options: dict[str, Any] = {}
    for name in ("config.json", "generation_config.json"):
        if not (path / name).is_file():
            continue
        try:
            values = dict(_read_json(path / name))
        except (OSError, ValueError, TypeError) as error:
            raise FarspanError(f"{name} cannot be read ({error}); download it again") from None
        options |= {key: value for key, value in values.items() if key in known and value is not None}
    return options


def _model_config(family: Family, values: Mapping[str, Any]) -> ModelConfig:
    try:
        return family.read_config({name: value for name, value in values.items() if value is not None})
    except KeyError as error:  # Hugging Face allows null in fields that a model needs
        raise FarspanError(f"config.json: {error.args[0]} is null; {_CURE}") from None


def _shapes(config: ModelConfig, vocab_size: int) -> dict[str, torch.Size]:
    try:
        return state_shapes(config, vocab_size)
    except (RuntimeError, TypeError, OverflowError) as error:
        raise FarspanError(f"config.json: no model can have its sizes ({first_line(error)}); {_CURE}") from None


def hugging_face_sha256(path: Path) -> str:
    """The sha256 of a folder's weights."""
    try:
        return _digest(path, _weight_files(path))
    except OSError as error:
        raise FarspanError(f"{path}: {error}; {_CURE}") from None


def _weight_files(path: Path) -> list[str]:
    """Names of the files with the stored tensors."""
    for name in ("model.safetensors", "pytorch_model.bin"):
        index = path / f"{name}.index.json"
        if (path / name).is_file():
            return [name]
        if index.is_file():
            try:
                return sorted({str(file) for file in _read_json(index)["weight_map"].values()})
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                raise FarspanError(f"{index.name} cannot be read ({error}); {_CURE}") from None
    raise FarspanError(f"there are no weights; {_CURE}")


def _load_files(path: Path, files: list[str]) -> dict[str, Tensor]:
    stored: dict[str, Tensor] = {}
    for name in files:
        if Path(name).name != name or not (path / name).is_file():
            raise FarspanError(f"the weights' index names {name!r}, which is not in the folder; {_CURE}")
        stored |= _load_file(path / name)
    # In the oldest files, the weight and bias of a norm are called gamma and beta.
    return {name.replace(".gamma", ".weight").replace(".beta", ".bias"): tensor for name, tensor in stored.items()}


def _load_file(file: Path) -> dict[str, Tensor]:
    try:
        if file.suffix == ".safetensors":
            return load_file(file)
        stored = torch.load(file, map_location="cpu", weights_only=True)
    except MemoryError:
        raise
    except Exception as error:  # wrong bytes may make the readers raise anything
        raise FarspanError(
            f"{file.name} is damaged or holds more than tensors ({first_line(error)}); download it again"
        ) from None
    if not isinstance(stored, dict) or not all(isinstance(x, Tensor) for x in stored.values()):
        raise FarspanError(f"{file.name} holds other things than named tensors; {_CURE}")
    return stored


def _digest(path: Path, files: list[str]) -> str:
    digest = sha256()
    for name in files:
        with (path / name).open("rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
    return digest.hexdigest()


def _is_tied(values: Mapping[str, Any], stored: Mapping[str, Tensor]) -> bool:
    """Return True if the output layer is tied to the token table; like Hugging Face, look at the weights first."""
    head = stored.get("lm_head.weight")
    tables = [stored[name] for name in ("shared.weight", "model.shared.weight") if name in stored]
    if head is None or not tables:
        return bool(values.get("tie_word_embeddings", True))
    return torch.equal(head, tables[0])


def split_carried(
    family: Family, stored: dict[str, Tensor], values: Mapping[str, Any]
) -> tuple[dict[str, Tensor], dict[str, Tensor], dict[str, Any]]:
    """Rename stored tensors, and set those apart that are carried, with the facts about them."""
    outer = nested(family)
    if outer is None:
        return stored, {}, {}
    parts: tuple[dict[str, Tensor], dict[str, Tensor]] = {}, {}
    for name, tensor in stored.items():
        for pattern, replacement in outer.RENAMED:
            name = re.sub(pattern, replacement, name)
        parts[any(fnmatchcase(name, each) for each in outer.CARRIED)][name] = tensor
    return *parts, {"carried": outer.carried_fields(values)} if parts[1] else {}


def _merge(values: Mapping[str, Any], others: Mapping[str, Any]) -> dict[str, Any]:
    """Replace fields of ``config.json``, and of the configurations in it, by ``others``."""
    inner = {name: {**values[name], **other} for name, other in others.items() if isinstance(other, Mapping)}
    return {**values, **others, **inner}


def _with_prefix(stored: dict[str, Tensor], names: set[str]) -> dict[str, Tensor]:
    """Add the prefix that names lack in a model saved without its head."""
    prefix, *others = {name.partition(".")[0] for name in names}
    if others or any(name.startswith(f"{prefix}.") for name in stored):
        return stored
    return {f"{prefix}.{name}": tensor for name, tensor in stored.items()}


def _read_vocabulary(path: Path, values: Mapping[str, Any]) -> tuple[Vocabulary, dict[str, bytes]]:
    files = {name: (path / name).read_bytes() for name in _TOKENIZER_FILES if (path / name).is_file()}
    size, ids, fingerprint, rows = values["vocab_size"], {}, None, values["vocab_size"]
    if files:
        tokenizer = load_tokenizer(str(path))
        if tokenizer.vocab_size > rows:
            raise FarspanError(
                f"config.json: vocab_size is {rows}, but the tokenizer beside it has {tokenizer.vocab_size} ids; the "
                "files do not belong together"
            )
        fingerprint, size = tokenizer.fingerprint, tokenizer.vocab_size
        ids = {name: tokenizer.owned_tokens[name] for name in (*_ROLES, MASK) if name in tokenizer.owned_tokens}
    for name, field in _ROLES.items():
        if isinstance(number := values.get(field), int) and 0 <= number < rows:
            ids.setdefault(name, number)
    start = values.get("decoder_start_token_id")
    named = [name for name in (END, PAD, BEGIN) if ids.get(name) == start]
    if start is not None and not named:
        raise FarspanError(
            f"config.json: decoder_start_token_id is {start!r}, which is not the id of the padding, "
            "begin or end token; make it one of these"
        )
    return Vocabulary(SpecialTokens(ids, rows), size, fingerprint, named[0] if named else END), files


def _write_json(file: Path, values: Mapping[str, Any]) -> None:
    file.write_text(json.dumps(values, indent=2, sort_keys=True) + "\n")
