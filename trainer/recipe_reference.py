"""Reference of recipes: facts of the packaged ones, and every key with its type, unit, default, meaning and values.

Keys are derived from the dataclasses of the sections and from the recipe files.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

from corpora.errors import FarspanError, nearest
from corpora.options import NO_FLAG, default_of, list_fields, meanings
from corpora.printing import option_text
from corpora.storage.files import read_user_toml
from trainer.recipe import Recipe, load_recipe
from trainer.recipe_files import list_recipes, read_tables, summaries
from trainer.run.memory import count_parameters


def recipes() -> list[dict[str, Any]]:
    """Return facts about each packaged recipe, by name.

    ``recipe``, ``system``, ``layers`` (of the encoder and the decoder), ``width``, ``parameters`` (without rows of
    tokens, which depend on the tokenizer), ``source_length`` and ``target_length`` in tokens, ``updates`` or
    ``epochs``, ``batch_size`` in rows, and ``published``: model, data and paper.
    """
    published = summaries()
    return [
        _facts(name, path.parent.name.removesuffix("_tasks"), published[name]) for name, path in list_recipes().items()
    ]


def _facts(name: str, system: str, published: str) -> dict[str, Any]:
    recipe = load_recipe(name)
    model, data, run = recipe.model, recipe.data, recipe.run
    return {
        "recipe": name,
        "system": system,
        "layers": [model.encoder.layers, model.decoder.layers if model.decoder else 0],
        "width": model.width,
        "parameters": count_parameters(model),
        "source_length": data.source_length,
        "target_length": data.target_length if model.decoder else 0,
        "updates": run.steps,
        "epochs": run.epochs,
        "batch_size": run.batch_size,
        "published": published,
    }


_PLAIN = {int: "integer", float: "number", str: "text", bool: "true or false"}
_UNITS = {
    "steps": "updates",
    "attention.every": "layers",
    "every": "updates",
    "epochs": "passes over the data",
    "batch_size": "rows",
    "length": "tokens",
    "tokens": "tokens",
    "positions": "positions",
    "dropout": "probability",
    "bytes": "bytes",
    "gib": "GiB",
    "seconds": "seconds",
    "tflops": "10^12 operations/s",
}
"""End of a key's name -> unit of its number; the first that fits."""


@dataclass(frozen=True)
class Key:
    """A key of a recipe."""

    name: str  # dotted; [] stands for the number of a table in a list
    kind: str  # its type in words
    unit: str  # of its number; empty for none
    default: str  # as a recipe spells it; empty if the key is required
    meaning: str  # entry of the field in the docstring of its section
    of: str  # pattern or scheme that has the key; empty if all have it
    values: Mapping[str, tuple[str, ...]]  # each value that packaged recipes set -> these recipes

    def describe(self) -> str:
        """Describe the key in lines of text."""
        kind = self.kind + (f" ({self.unit})" if self.unit else "")
        lines = [self.name + (f" (of {self.of})" if self.of else ""), f"  {kind}; {self.default_text}"]
        lines += [f"  {self.meaning}"] if self.meaning else []
        return "\n".join([*lines, *(f"  {value} in {', '.join(names)}" for value, names in self.values.items())])

    @property
    def default_text(self) -> str:
        """``required``, or the default in words; TOML has no null."""
        if not self.default:
            return "required"
        return "not set by default" if self.default == "null" else f"default {self.default}"


@cache
def recipe_keys() -> tuple[Key, ...]:
    """List all keys, in the order of the sections."""
    tables = {name: (read_user_toml(path), read_tables(name)[0]) for name, path in list_recipes().items()}
    return tuple(_Walk(tables).walk(Recipe, ""))


def find_keys(name: str) -> list[Key]:
    """Find a key, or all keys of a section."""
    keys = [key for key in recipe_keys() if f"{key.name}.".replace("[]", "").startswith(f"{name.replace('[]', '')}.")]
    if not keys:
        if name in list_recipes():
            raise FarspanError(f"--options {name}: is a recipe, not a key; `farspan recipes {name}` prints it")
        known = {part for key in recipe_keys() for part in (key.name, key.name.partition(".")[0])}
        raise FarspanError(f"--options {name}: recipes have no such key{nearest(name, known)}; --options lists all")
    return keys


def describe_keys(name: str | None) -> str:
    """Describe a key or the keys of a section; a line for each key if none is named."""
    if name:
        return "\n\n".join(key.describe() for key in find_keys(name))
    owners: dict[str, list[str]] = {}
    for key in recipe_keys():
        line = f"{key.name:44} {key.kind}{f' ({key.unit})' if key.unit else ''}; {key.default_text}"
        owners.setdefault(line, []).append(key.of)
    return "\n".join(line + (f"; of {', '.join(of)}" if all(of) else "") for line, of in owners.items())


class _Walk:
    """The way through the sections; one that occurs twice is described where it occurs first.

    ``tables`` maps a recipe to the tables of its file, and those merged over the ones that it extends.
    """

    def __init__(self, tables: Mapping[str, tuple[Mapping[str, Any], Mapping[str, Any]]]) -> None:
        self._tables = tables
        self._places: dict[Any, str] = {}

    def walk(self, kind: Any, section: str, tag: str = "") -> Iterator[Key]:
        """Yield the keys of a dataclass, which has the pattern or scheme named by the field ``tag``."""
        of = f"{tag} {getattr(kind, tag)}" if tag else ""
        summary = inspect.cleandoc(kind.__doc__ or "").partition("\n")[0] if tag else ""
        for field in fields(kind):
            hint, flag = list_fields(kind)[field.name]
            explained = meanings(kind).get(field.name, summary).replace("``", "").replace("None", "not set")
            path = f"{section}.{field.name}" if section else field.name
            inner = [part for part in _parts(hint) if is_dataclass(part)]
            if inner:
                chosen = default_of(field)
                yield from self._walk_section(inner, path + "[]" * (get_origin(hint) is tuple), explained, chosen)
            elif field.name != tag and flag is not NO_FLAG:
                default = default_of(field)
                unit = next((_UNITS[end] for end in _UNITS if path.endswith(end)), "")
                spelled = "" if default is MISSING else option_text(default)
                values = self._values(path, section, tag and (tag, getattr(kind, tag)))
                numeric = {int, float} & set(_parts(hint))
                yield Key(path, _describe(hint), unit if numeric else "", spelled, explained, of, values)

    def _walk_section(self, kinds: list[Any], path: str, meaning: str, default: Any) -> Iterator[Key]:
        """Yield the keys of a section that has one of several dataclasses."""
        if (first := self._places.setdefault(kinds[0], path)) != path:
            yield Key(path, f"table with the keys of {first}", "", "{}", meaning, "", {})
            return
        tag = next((one for one in ("pattern", "scheme") if len(kinds) > 1 and hasattr(kinds[0], one)), "")
        if tag:
            names = ", ".join(repr(getattr(kind, tag)) for kind in kinds)
            spelled = option_text(getattr(default, tag)) if is_dataclass(default) else ""
            yield Key(
                f"{path}.{tag}", f"one of {names}", "", spelled, meaning, "", self._values(f"{path}.{tag}", path, "")
            )
        for kind in kinds:
            yield from self.walk(kind, path, tag)

    def _values(self, path: str, section: str, tagged: Any) -> dict[str, tuple[str, ...]]:
        """Map each value that recipe files themselves set to the recipes; with ``tagged``, those of this tag only."""
        values: dict[str, list[str]] = {}
        for recipe, (own, merged) in self._tables.items():
            if tagged and tagged[1] not in _look_up(merged, f"{section}.{tagged[0]}".split(".")):
                continue
            for value in _look_up(own, path.split(".")):
                values.setdefault(option_text(value), []).append(recipe)
        return {value: tuple(dict.fromkeys(recipes)) for value, recipes in values.items()}


def _parts(hint: Any) -> list[Any]:
    """Return the types of a union or list, without None; of another type, itself."""
    if get_origin(hint) in (Union, UnionType, tuple):
        return [inner for part in get_args(hint) if part not in (NoneType, Ellipsis) for inner in _parts(part)]
    return [hint]


def _describe(hint: Any) -> str:
    """Describe a type in words."""
    if get_origin(hint) in (Union, UnionType):
        return " or ".join(_describe(part) for part in get_args(hint) if part is not NoneType)
    if get_origin(hint) is Literal:
        return f"one of {', '.join(map(repr, get_args(hint)))}"
    if get_origin(hint) is tuple:
        return "list of " + ", ".join(_describe(part) for part in get_args(hint) if part is not ...)
    return _PLAIN.get(hint, "table")


def _look_up(table: Any, path: list[str]) -> Iterator[Any]:
    if not path:
        yield table
    elif isinstance(table, Mapping) and (name := path[0].removesuffix("[]")) in table:
        for one in table[name] if path[0].endswith("[]") else [table[name]]:
            yield from _look_up(one, path[1:])
