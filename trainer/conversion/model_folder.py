"""farspan's model folder: configuration, vocabulary and weights, validated when read.

``manifest.json`` is written last and holds bytes and sha256 of ``model.safetensors`` and of the files in
``tokenizer/``.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, TypedDict

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from corpora.errors import FarspanError, first_few, first_line
from corpora.settings import parse
from corpora.storage.files import read_bytes, write_bytes
from corpora.storage.stores.local_disk import temporary_name
from corpora.storage.strict_json import StructureError, decode, parse_json
from trainer.checkpoint.files import Facts, check_file, file_facts
from trainer.checkpoint.run_files import DamagedError
from trainer.conversion.names import state_shapes
from trainer.conversion.vocabulary import Vocabulary
from trainer.model.config import ModelConfig

FORMAT, VERSION = "farspan.model", 1
MANIFEST, WEIGHTS, CARRIED, TOKENIZER = "manifest.json", "model.safetensors", "carried.safetensors", "tokenizer"
_FILES: Any = Mapping[
    Annotated[str, re.compile(rf"{re.escape(WEIGHTS)}|{re.escape(CARRIED)}|{TOKENIZER}/[\w-][\w.-]*")], Facts
]
_TABLE: Any = Mapping[str, Any]


class _Vocabulary(TypedDict):
    tokenizer_fingerprint: str | None
    tokenizer_size: Annotated[int, range(2**31)]
    special_tokens: Mapping[str, Annotated[int, range(2**31)]]
    size: Annotated[int, range(1, 2**31)]
    decoder_start: str
    frame: tuple[str, ...] | None


_MOST_LAYERS = 1000  # allowed if fewer tensors are stored; the error then lists the missing ones
_KEYS = {"format", "format_version", "config", "vocabulary", "parent", "generation", "files"}


@dataclass(frozen=True)
class Model:
    """A model in memory.

    ``tokenizer`` has the contents of the tokenizer's files by name, ``parent`` describes the source that the model was
    made from, ``generation`` are imported settings in the form of ``generation_config.json``. ``carried`` are imported
    tensors that farspan's model does not have, such as a vision tower's, for the export.
    """

    config: ModelConfig
    vocabulary: Vocabulary
    state: Mapping[str, Tensor]  # float32, on the CPU
    tokenizer: Mapping[str, bytes] = field(default_factory=dict)
    parent: Mapping[str, Any] = field(default_factory=dict)
    generation: Mapping[str, Any] = field(default_factory=dict)
    carried: Mapping[str, Tensor] = field(default_factory=dict)


def is_model_folder(path: Path) -> bool:
    """Return True if ``path`` has the manifest of a model folder."""
    try:
        return _parse(path)["format"] == FORMAT
    except (OSError, StructureError, KeyError, TypeError):
        return False


def write_model_folder(model: Model, path: Path) -> None:
    """Write ``path`` atomically."""
    if path.exists():
        raise FarspanError(f"{path} exists; name a folder that does not, or delete it")
    temporary = Path(temporary_name(str(path)))
    (temporary / TOKENIZER).mkdir(parents=True)
    tensors = {WEIGHTS: model.state, **({CARRIED: model.carried} if model.carried else {})}
    for name, part in tensors.items():
        save_file({each: tensor.contiguous() for each, tensor in part.items()}, temporary / name)
    for name, content in model.tokenizer.items():
        (temporary / TOKENIZER / name).write_bytes(content)
    names = [*tensors, *(f"{TOKENIZER}/{name}" for name in sorted(model.tokenizer))]
    manifest = {
        "format": FORMAT,
        "format_version": VERSION,
        "config": model.config.as_table(),
        "vocabulary": model.vocabulary.to_json(),
        "parent": dict(model.parent),
        "generation": dict(model.generation),
        "files": {name: file_facts(temporary / name) for name in names},
    }
    write_bytes(str(temporary / MANIFEST), json.dumps(manifest, indent=1).encode())
    make_readable(temporary)
    os.replace(temporary, path)


def make_readable(folder: Path) -> None:
    """Set the mode of every file in ``folder`` to 0644, since tensor writers use stricter modes."""
    for file in folder.rglob("*"):
        if file.is_file():
            file.chmod(0o644)


def read_model_folder(path: Path) -> Model:
    """Read a complete model folder."""
    manifest = _manifest(path)
    try:
        config = parse(ModelConfig, manifest["config"], str(path / MANIFEST), "config")
        vocabulary = Vocabulary.from_json(decode(_Vocabulary, manifest["vocabulary"], "vocabulary"))
        files: Mapping[str, Facts] = decode(_FILES, manifest["files"], "files")
        parent: Mapping[str, Any] = decode(_TABLE, manifest["parent"], "parent")
        generation: Mapping[str, Any] = decode(_TABLE, manifest["generation"], "generation")
        for name, facts in files.items():
            check_file(path / name, facts)
        state, carried = (load_file(path / name) if name in files else {} for name in (WEIGHTS, CARRIED))
    except (KeyError, TypeError, ValueError, AttributeError, DamagedError, SafetensorError) as error:
        reason = f"missing or wrong {error}" if isinstance(error, KeyError) else error
        raise FarspanError(f"{path} is damaged ({reason}); make or copy it again") from None
    _require_shapes(path, config, vocabulary.size, state)
    prefix = f"{TOKENIZER}/"
    tokenizer = {name.removeprefix(prefix): (path / name).read_bytes() for name in files if name.startswith(prefix)}
    return Model(config, vocabulary, state, tokenizer, parent, generation, carried)


def read_model_config(path: Path) -> ModelConfig:
    """Read the configuration of a model folder from its manifest alone."""
    return parse(ModelConfig, _manifest(path)["config"], str(path / MANIFEST), "config")


def weights_sha256(path: Path) -> str:
    """Return the sha256 of a model folder's weights from its manifest."""
    try:
        return str(_manifest(path)["files"][WEIGHTS]["sha256"])
    except (KeyError, TypeError):
        raise FarspanError(f"{path} is damaged ({MANIFEST} names no {WEIGHTS}); make or copy it again") from None


def _manifest(path: Path) -> dict[str, Any]:
    try:
        manifest = _parse(path)
        found = manifest["format"], manifest["format_version"]
    except (OSError, StructureError, KeyError, TypeError) as error:
        raise FarspanError(
            f"{path} is not a model folder of farspan ({MANIFEST}: {error}); `farspan convert` makes one"
        ) from None
    if found[0] != FORMAT:
        raise FarspanError(f"{path} has format {found[0]!r}, not {FORMAT!r}; `farspan convert` makes one")
    if found[1] != VERSION:
        raise FarspanError(
            f"{path}: format {found[0]!r} version {found[1]!r}; this farspan reads {FORMAT!r} version {VERSION}; use "
            "the farspan that wrote it"
        )
    if manifest.keys() != _KEYS:
        raise FarspanError(
            f"{path} is damaged ({MANIFEST} has the keys {', '.join(sorted(manifest))}, not "
            f"{', '.join(sorted(_KEYS))}); make or copy it again"
        )
    return manifest


def _parse(path: Path) -> Any:
    return parse_json(read_bytes(str(path / MANIFEST)))


def _require_shapes(path: Path, config: ModelConfig, vocab_size: int, state: Mapping[str, Tensor]) -> None:
    layers = config.encoder.layers + (config.decoder.layers if config.decoder else 0)
    if layers > max(len(state), _MOST_LAYERS):  # too many may not fit into memory
        raise FarspanError(
            f"{path}: its configuration has {layers} layers, its weights {len(state)} tensors; make or copy it again"
        )
    try:
        expected, shapes = state_shapes(config, vocab_size), {name: tensor.shape for name, tensor in state.items()}
    except (RuntimeError, TypeError, OverflowError) as error:
        raise FarspanError(
            f"{path}: no model can have its sizes ({first_line(error)}); make or copy it again"
        ) from None
    wrong = [name for name in sorted(expected | shapes) if expected.get(name) != shapes.get(name)]
    if wrong:
        faults = [f"{name}: {_shape(shapes.get(name))}, not {_shape(expected.get(name))}" for name in wrong]
        raise FarspanError(
            f"{path}: the weights do not fit the configuration beside them ({first_few(faults)}); make or copy it again"
        )


def _shape(shape: Any) -> str:
    return "none" if shape is None else str(tuple(shape))
