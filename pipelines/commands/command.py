"""A subcommand and its parser, which declares the command's arguments only when the command is used."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from importlib import import_module
from typing import Any, Literal

from corpora.address_space import check_address_space
from corpora.errors import FarspanError, nearest
from corpora.options import add_flags, examples, explanation
from corpora.reporting import Reporting, tell_error
from corpora.settings import make


@dataclass(frozen=True, kw_only=True)
class Command:
    """A subcommand; heavy imports are delayed until it runs.

    ``run`` is the function to call with the options, as ``module:function``; a module that begins with a dot is in
    ``pipelines``. With the flags of the engine, it returns the job that makes an artefact, or an iterator of jobs to
    run one after the other. ``options`` are dataclasses whose fields are the arguments: names in the module ``options``
    beside that of ``run``, or ``module:Class``. The docstring of the last one has further explanation and examples.
    """

    name: str  # the words after ``farspan``
    summary: str  # description in one sentence
    run: str
    options: tuple[str, ...]
    flags: Literal["engine", "s3", "none"] = "none"  # those of the engine and of Beam, or only Beam's ``--s3_*``
    next: str = ""  # the command that is likely next, with fields of the last of the options in braces
    declare: Callable[[Any], object] = lambda parser: None  # adds arguments that print something and stop

    @property
    def job(self) -> bool:
        """True if ``run`` returns jobs."""
        return self.flags == "engine"

    def kinds(self) -> list[Any]:
        """Import the dataclasses of the options."""
        beside = self.run.partition(":")[0].rpartition(".")[0]
        return [load(name if ":" in name else f"{beside}.options:{name}") for name in self.options]

    def decode(self, values: Mapping[str, Any], spell: Callable[[str], str] = "--{}".format) -> list[Any]:
        """Build the options from flags or keywords, as ``corpora.settings.make`` takes them."""
        return [make(kind, values, spell) for kind in self.kinds()]

    def next_command(self, options: Any) -> str:
        """Return the command that is likely next, after one with these options."""
        quoted = {field.name: shlex.quote(str(getattr(options, field.name))) for field in fields(options)}
        return self.next.format(**quoted)

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add all arguments of the command to ``parser``, with its explanation and examples."""
        kinds = self.kinds()
        for kind in kinds:
            add_flags(parser, kind)
        self.declare(parser)
        if further := explanation(kinds[-1]):
            parser.description = f"{self.summary}\n\n{further}"
        if lines := examples(kinds[-1]):
            parser.epilog = "\n  ".join(["examples:", *lines.splitlines()])
        if self.job:
            from pipelines.engine.options import Engine

            add_flags(parser.add_argument_group("engine", "Beam's own flags are passed on unchanged"), Engine)
        add_flags(parser.add_argument_group("messages"), Reporting)


def load(place: str) -> Any:
    """Import an object by its ``module:name``; a module that begins with a dot is in ``pipelines``."""
    module, _, name = place.partition(":")
    return getattr(import_module(module, "pipelines"), name)


class Parser(argparse.ArgumentParser):
    """An ``ArgumentParser`` that declares its arguments late and suggests the nearest name for a wrong one."""

    def __init__(self, *, command: Command | None = None, **named: Any) -> None:
        super().__init__(formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False, **named)
        self.command = command
        self._declared = False
        self._typed: list[str] = []

    def declare(self) -> None:
        """Add the command's arguments, once."""
        if self.command is not None and not self._declared:
            self.command.add_arguments(self)
        self._declared = True

    def flags(self) -> list[str]:
        """Return all flags of the parser, to suggest from."""
        self.declare()
        return list(self._option_string_actions)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        self.declare()
        self._typed = list(args or [])
        return super().parse_known_args(args, namespace)

    def error(self, message: str) -> Any:
        if "required" in message:  # perhaps because a flag is misspelt
            unknown = [word.partition("=")[0] for word in self._typed if word.startswith("--")]
            hints = (name + nearest(name, self.flags()) for name in unknown if name not in self.flags())
            message = "; ".join([message, *(f"unknown {hint}" for hint in hints if "(" in hint)])
        tell_error(f"{self.prog}: error: {message}; see {self.prog} --help")  # all flags would hide it
        self.exit(2)

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            known = [str(choice) for choice in action.choices]
            hint = nearest(str(value), known)
            raise argparse.ArgumentError(action, f"unknown {value!r}{hint}; choose one of {', '.join(known)}")


class Explain(argparse.Action):
    """Print the explanation of the objective named before this flag, and exit."""

    def __init__(self, option_strings: Any, dest: str) -> None:
        meaning = "explain the objective, its options and presets, and stop"
        super().__init__(option_strings, argparse.SUPPRESS, nargs=0, help=meaning)

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: Any = None) -> None:
        name = getattr(namespace, "objective", None)
        try:
            check_address_space()
            from objectives.api.protocol import OBJECTIVES
            from pipelines.inspect.plugins import explain

            print(explain(OBJECTIVES, name) if name else "name the objective first: farspan mask span --options")
        except FarspanError as error:
            parser.exit(1, f"farspan: {error}\n")
        parser.exit()


class ExplainKeys(argparse.Action):
    """Print the reference of a recipe's keys, and exit."""

    def __init__(self, option_strings: Any, dest: str, **details: Any) -> None:
        meaning = "explain a key of recipes, or the keys of a section, with the packaged recipes' values; list all keys"
        super().__init__(option_strings, argparse.SUPPRESS, help=f"{meaning}; and stop", **details)

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: Any = None) -> None:
        try:
            from trainer.recipe_reference import describe_keys  # brings torch

            print(describe_keys(values))
        except FarspanError as error:
            parser.exit(1, f"farspan: {error}\n")
        parser.exit()
