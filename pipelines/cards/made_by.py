"""The command that makes an artefact, derived from its manifest: options become flags, folders placeholders."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, fields, is_dataclass
from typing import Any, get_args, get_origin, get_type_hints

from corpora.errors import FarspanError
from corpora.options import NO_FLAG, UNRECORDED, list_fields
from corpora.settings import format_assignment
from corpora.storage.manifest import Manifest

_COMMANDS = {
    "farspan.documents": "documents",
    "farspan.masks": "mask",
    "farspan.vectors": "embed",
    "farspan.clusters": "cluster",
    "farspan.neighbours": "neighbours",
    "farspan.pairs": "pairs",
    "farspan.predictions": "generate",
    "farspan.export": "export",
}
_PLACES = {"recipe": "MIXTURE.toml"}  # option without a value in the manifest -> placeholder, if not its own name
_BY_TOOL = ("scorer",)  # options that were given if the manifest lists a tool of that name


def command_of(manifest: Manifest) -> str | None:
    """Return the command line that makes an artefact again; None if no command of farspan makes it.

    Options with default values are left out. Folders, raw files and models are placeholders in capitals, because
    manifests do not contain paths.
    """
    from pipelines.commands.table import COMMANDS

    name = _COMMANDS.get(manifest.format) or f"corpus {manifest.config.get('builder')}"
    command = next((command for command in COMMANDS if command.name == name), None)
    if command is None:
        return None
    words: list[str] = []
    for kind in command.kinds():
        words += _flags(kind, manifest, _config_as_flags(manifest))
    words.sort(key=lambda word: word.startswith("--"))  # positional ones first
    return " ".join(["farspan", command.name, *words])


def _config_as_flags(manifest: Manifest) -> Mapping[str, Any]:
    """Return ``config`` with values in the form of flags."""
    config = dict(manifest.config)
    if manifest.format == "farspan.masks":
        config["options"] = _find_changed_options(str(config["objective"]), config["options"])
    if manifest.format == "farspan.predictions":
        config["task"] = config["task"]["name"]
    return config


def _find_changed_options(objective: str, options: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the options of an objective that differ from its defaults; all options if it is not installed."""
    from objectives.api.protocol import load_objective

    try:
        defaults = json.loads(json.dumps(dict(load_objective(objective).options)))
    except (FarspanError, TypeError):
        return options
    return {name: value for name, value in options.items() if name not in defaults or defaults[name] != value}


def _flags(kind: type, manifest: Manifest, config: Mapping[str, Any]) -> Iterator[str]:
    """Yield the flags of a dataclass of options; positional arguments are separate words."""
    hints = get_type_hints(kind, include_extras=True)
    for field in fields(kind):
        hint, flag = list_fields(kind)[field.name]
        name = f"--{flag.name or field.name.replace('_', '-')}"
        required = field.default is MISSING and field.default_factory is MISSING
        default = field.default if field.default_factory is MISSING else field.default_factory()
        if field.name == "input":
            yield from _inputs(config)
        elif field.name == "read":
            yield from _reading(hint, manifest, config)
        elif flag is NO_FLAG:
            continue
        elif field.name == "seed":
            if manifest.seed != default:
                yield f"{name} {manifest.seed}"
        elif UNRECORDED in get_args(hints[field.name]):
            value, placeholder = config.get(field.name), _PLACES.get(field.name, field.name.upper())
            if field.name == "output":
                placeholder = manifest.format.removeprefix("farspan.").upper()
            if isinstance(value, str | list):  # licence and languages of documents
                yield from _flag_words(name, hint, value)
            elif required:
                yield placeholder if flag.positional else f"{name} {placeholder}"
            elif value or (field.name in _BY_TOOL and field.name in config.get("tools", {})):
                yield f"{name} {placeholder}"
        elif is_dataclass(hint):
            yield from _flags(hint, manifest, config)  # type: ignore[arg-type]
        elif flag.positional:
            value = config.get(field.name)
            yield shlex.quote(value) if isinstance(value, str) else field.name.upper()
        elif field.name in config and not _same(config[field.name], default):
            yield from _flag_words(name, hint, config[field.name])


def _same(value: Any, default: Any) -> bool:
    if isinstance(value, Mapping) and "version" in value:  # a sentence splitter, recorded with its version
        value = value["name"]
    return bool(value == default) or (isinstance(default, tuple) and value == list(default))


def _flag_words(name: str, hint: Any, value: Any) -> Iterator[str]:
    """Yield a flag with its value in the form of the command line."""
    if isinstance(value, bool):
        yield name  # only given if it differs from the default
    elif get_origin(hint) is tuple:
        yield from (f"{name} {shlex.quote(str(one))}" for one in value)
    elif isinstance(value, Mapping) and "name" in value:
        yield f"{name} {shlex.quote(str(value['name']))}"
    elif isinstance(value, Mapping) and "manifest_sha256" in value:
        yield f"{name} {name.removeprefix('--').upper()}"
    elif isinstance(value, Mapping):
        yield from (f"{name} {shlex.quote(format_assignment(key, one))}" for key, one in value.items())
    elif value is not None:
        yield f"{name} {shlex.quote(str(value))}"


def _inputs(config: Mapping[str, Any]) -> Iterator[str]:
    for source in config.get("sources", ()):
        yield f"--input {shlex.quote(source)}=RAW"


def _reading(kind: Any, manifest: Manifest, config: Mapping[str, Any]) -> Iterator[str]:
    """Yield the read options that all sources share, as flags."""
    reads = list(config.get("read", {}).values())
    first = reads[0] if reads else {}
    shared = {name: value for name, value in first.items() if all(read.get(name) == value for read in reads)}
    yield from _flags(kind, manifest, shared)
