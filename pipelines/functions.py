"""Commands as Python functions, with the flags, defaults and help of each command as keywords.

A function does the same as its command, so repeating a stopped call resumes it. It raises ``FarspanError`` for errors
that the command prints. Each function is built when it is first used, as the stub of the package ``farspan`` lists it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from inspect import Parameter, Signature
from pathlib import Path
from types import NoneType
from typing import Any, Literal, get_args, get_origin

from corpora.errors import nearest
from corpora.options import Option, explain, explanation, keyword, options_of
from corpora.reporting import Reporting
from corpora.storage.manifest import Manifest
from corpora.storage.manifest_file import read_manifest
from pipelines.cli import run
from pipelines.commands.command import Command
from pipelines.commands.table import COMMANDS
from pipelines.engine.options import Engine

Text = str | os.PathLike[str]
_COMMAND_LINE = ("estimate",)  # flags that print and stop


_RESULTS: Mapping[str, type | None] = {
    "tokenizer train": Path,
    "check-objective": None,
    "show": None,
    "finalize": Manifest,
    "convert": Path,
    "plot": Path,
    "generate": Manifest,
}
"""Command -> type of what its Python function returns: the manifest or the path of what it made; jobs: a manifest."""
FUNCTIONS = {
    re.sub(r"\W", "_", command.name): (command, _RESULTS.get(command.name, Manifest))
    for command in COMMANDS
    if command.job or command.name in _RESULTS
}


def __getattr__(name: str) -> Callable[..., Any]:
    if name not in FUNCTIONS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = function = _build(name, *FUNCTIONS[name])
    return function


def _build(name: str, command: Command, returned: type | None) -> Callable[..., Any]:
    """Build the function ``name`` of a command."""
    options = list_options(command)
    parameters = sorted(map(_parameter, options.values()), key=lambda one: (one.kind, one.default is not one.empty))
    if command.job:
        parameters.append(Parameter("beam_flags", Parameter.KEYWORD_ONLY, default=(), annotation=Sequence[str]))
    signature = Signature(parameters, return_annotation=returned)

    def call(*arguments: Any, **keywords: Any) -> Any:
        for word in keywords:
            if word not in signature.parameters:  # before bind, which would first complain of what is then missing
                hint = nearest(word, signature.parameters)
                raise TypeError(f"{name}() got an unexpected keyword argument {word!r}{hint}")
        values = signature.bind(*arguments, **keywords).arguments
        beam_flags = values.pop("beam_flags", ())
        last = run(command, values, beam_flags, keyword)[-1]
        if returned is None:
            return None
        return read_manifest(last.output) if returned is Manifest else Path(getattr(last, "figure", "") or last.output)

    call.__name__ = call.__qualname__ = name
    call.__module__ = "farspan"
    call.__doc__ = _describe(command, options)
    call.__signature__ = signature  # type: ignore[attr-defined]
    return call


def list_options(command: Command) -> dict[str, Option]:
    """Return the options of a command by keyword; dataclasses that declare the same one share it."""
    options: dict[str, Option] = {}
    for kind in (*command.kinds(), *([Engine] if command.job else []), Reporting):
        for option in options_of(kind):
            if not option.flag.hidden and option.name not in _COMMAND_LINE:
                options.setdefault(option.keyword, option)
    return options


def _parameter(option: Option) -> Parameter:
    kind = Parameter.POSITIONAL_OR_KEYWORD if option.flag.positional else Parameter.KEYWORD_ONLY
    annotation = _annotation(option)
    if option.required:
        default: Any = Parameter.empty
    elif option.hint is bool:
        default = False  # a flag may switch off what is on
    else:
        default = {} if annotation == Mapping[str, Any] else option.default
    return Parameter(option.keyword, kind, default=default, annotation=annotation)


def _annotation(option: Option) -> Any:
    """Return the type of a keyword: that of the field, and what the decoder takes in place of it."""
    hint, named = option.hint, "=" in (option.flag.metavar or "")
    if option.choices:
        plain: Any = Literal[option.choices]
    elif get_origin(hint) is Mapping or option.flag.metavar == "KEY=VALUE":
        plain = Mapping[str, Any]
    elif get_origin(hint) is tuple:
        plain = Text | Sequence[Text] | Mapping[str, Text] if named else Text | Sequence[Text]
    else:
        plain = next((part for part in get_args(hint) if part is not NoneType), hint)
        plain = Text if plain is str else plain
    return plain | None if NoneType in get_args(hint) else plain


def _describe(command: Command, options: Mapping[str, Option]) -> str:
    """Return the docstring of a command's function."""
    lines = [command.summary, "", explanation(command.kinds()[-1]), "", "Args:"]
    lines += [f"    {name}: {explain(option)}" for name, option in options.items()]
    return "\n".join(lines)
