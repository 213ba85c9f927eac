"""Commands as Python functions, with the flags, defaults and help of each command as keywords.

A function does the same as its command, so repeating a stopped call resumes it. It raises ``FarspanError`` for errors
that the command prints.
"""

from __future__ import annotations

import argparse
import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from inspect import Parameter, Signature
from pathlib import Path
from typing import Any, Literal, TypeVar

from corpora.errors import FarspanError, nearest
from corpora.settings import assigned
from corpora.storage.manifest import Manifest
from corpora.storage.manifest_file import read_manifest
from pipelines.commands import build_parser
from pipelines.commands.command import Parser
from pipelines.execute import run

Result = TypeVar("Result")


def _function(name: str, command: str, result: Callable[[argparse.Namespace], Result]) -> Callable[..., Result]:
    """Make the function of a command.

    Args:
        name: name of the function.
        command: words of the command, e.g. ``corpus random``.
        result: makes the function's result from the options, after the command has run.
    """
    parser = _parser(command)
    stored = [action for action in parser._actions if _stores(action)]
    unseen = {action.dest: action.default for action in stored if action.help == argparse.SUPPRESS}
    actions = {action.dest: action for action in stored if action.dest not in unseen}
    parameters = sorted(map(_parameter, actions.values()), key=lambda one: (one.kind, one.default is not one.empty))
    if parser.command is not None and parser.command.job:
        parameters.append(Parameter("beam_flags", Parameter.KEYWORD_ONLY, default=(), annotation=Sequence[str]))
    signature = Signature(parameters)

    def call(*arguments: Any, **keywords: Any) -> Result:
        for keyword in keywords:
            if keyword not in signature.parameters:  # before bind, which would first complain of what is then missing
                hint = nearest(keyword, signature.parameters)
                raise TypeError(f"{name}() got an unexpected keyword argument {keyword!r}{hint}")
        given = signature.bind(*arguments, **keywords)
        given.apply_defaults()
        flags = given.arguments.pop("beam_flags", ())
        typed = {dest: _typed(parser, actions[dest], value) for dest, value in given.arguments.items()}
        options = argparse.Namespace(**{**parser._defaults, **unseen, **typed})
        run(options, flags)
        return result(options)

    call.__name__ = call.__qualname__ = name
    call.__module__ = "farspan"
    call.__doc__ = _described(parser, actions)
    call.__signature__ = signature  # type: ignore[attr-defined]
    return call


def _manifest_of(options: argparse.Namespace) -> Manifest:
    """Read the manifest of the artefact that a command made."""
    return read_manifest(options.output)


def _folder_of(options: argparse.Namespace) -> Path:
    """Return the folder that a command made."""
    return Path(options.output)


@lru_cache(maxsize=1)
def _commands() -> Parser:
    return build_parser()


def _parser(command: str) -> Parser:
    parser = _commands()
    for word in command.split():
        (commands,) = (action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
        parser = commands.choices[word]
    parser.declare()
    return parser


def _stores(action: argparse.Action) -> bool:
    """True for an action that stores an option, unlike ``--help`` and others that exit."""
    return type(action).__name__ in ("_StoreAction", "_StoreTrueAction", "_StoreFalseAction", "_AppendAction")


def _parameter(action: argparse.Action) -> Parameter:
    needed = action.required and action.nargs != "?"
    kind = Parameter.KEYWORD_ONLY if action.option_strings else Parameter.POSITIONAL_OR_KEYWORD
    hint = _annotation(action)
    default: Any = action.default
    if _repeated(action):
        default = {} if hint == Mapping[str, Any] else ()
    return Parameter(action.dest, kind, default=Parameter.empty if needed else default, annotation=hint)


def _annotation(action: argparse.Action) -> Any:
    if action.nargs == 0:
        return bool
    kind = action.type if isinstance(action.type, type) else str
    hint: Any = Literal[tuple(action.choices)] if action.choices else kind
    if _repeated(action):
        return Mapping[str, Any] if action.metavar == "KEY=VALUE" else Sequence[str]
    return hint if action.required or action.default is not None else hint | None


def _repeated(action: argparse.Action) -> bool:
    return isinstance(action, argparse._AppendAction) or action.nargs == "+"


def _typed(parser: Parser, action: argparse.Action, value: Any) -> Any:
    """Convert a value to the form that the command line gives it: paths to text, mappings to ``KEY=VALUE``, single
    values of repeatable flags to lists.

    Raises:
        FarspanError: the command line would refuse the value.
    """
    if isinstance(value, Mapping):
        if action.metavar == "KEY=VALUE":
            return [assigned(key, inner) for key, inner in value.items()]
        value = [f"{key}={os.fspath(inner)}" for key, inner in value.items()]  # NAME=PATTERN, which is not TOML
    if _repeated(action):
        parts = (value,) if isinstance(value, str | os.PathLike) else value
        return [_checked(parser, action, part) for part in parts]
    return value if value is None else _checked(parser, action, value)


def _checked(parser: Parser, action: argparse.Action, value: Any) -> Any:
    """Convert and check one value by the type and the choices of its flag."""
    if action.nargs == 0:
        if not isinstance(value, bool):
            raise FarspanError(f"{action.dest} is {value!r}; give True or False")
        return value
    try:
        typed = parser._get_value(action, os.fspath(value) if isinstance(value, os.PathLike) else str(value))
        parser._check_value(action, typed)
    except argparse.ArgumentError as error:
        raise FarspanError(f"{action.dest}: {error.message}") from None
    return typed


def _described(parser: argparse.ArgumentParser, actions: Mapping[str, argparse.Action]) -> str:
    lines = [parser.description or "", "", "Args:"]
    for dest, action in actions.items():
        lines.append(f"    {dest}: {(action.help or '').replace('%%', '%')}")
    return inspect.cleandoc("\n".join(lines))


tokenizer_train = _function("tokenizer_train", "tokenizer train", _folder_of)
documents = _function("documents", "documents", _manifest_of)
pairs = _function("pairs", "pairs", _manifest_of)
corpus_random = _function("corpus_random", "corpus random", _manifest_of)
corpus_linked = _function("corpus_linked", "corpus linked", _manifest_of)
corpus_long = _function("corpus_long", "corpus long", _manifest_of)
corpus_related = _function("corpus_related", "corpus related", _manifest_of)
embed = _function("embed", "embed", _manifest_of)
cluster = _function("cluster", "cluster", _manifest_of)
neighbours = _function("neighbours", "neighbours", _manifest_of)
mask = _function("mask", "mask", _manifest_of)
generate = _function("generate", "generate", _manifest_of)
finalize = _function("finalize", "finalize", _manifest_of)
convert = _function("convert", "convert", _folder_of)
plot = _function("plot", "plot", lambda options: Path(options.figure))
show = _function("show", "show", lambda options: None)  # it prints
check_objective = _function("check_objective", "check-objective", lambda options: None)
