"""A subcommand and its parser, which declares the command's arguments only when the command is used."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any

from corpora.errors import FarspanError, nearest
from pipelines.flags import add_flags, make

Typed = argparse.Namespace


@dataclass(frozen=True, kw_only=True)
class Command:
    """A subcommand; heavy imports are delayed until it runs.

    Attributes:
        name: the words after ``farspan``.
        summary: description in one sentence.
        options: dataclasses whose fields are the arguments, each as ``module:Class``.
        run: function that runs the command with parsed arguments, or ``module:function`` to call with the options.
        declare: adds arguments to a parser that are not among the options.
        check: validates parsed arguments quickly, before Beam is imported.
        epilog: examples and further explanation, printed below the flags.
        job: True for commands that make an artefact with a Beam job and have the flags of the engine.
        takes_beam_flags: True if unknown flags are passed to Beam; otherwise they are errors.
        reads_artefacts: True if the command takes Beam's ``--s3_*`` flags, without Beam.
    """

    name: str
    summary: str
    options: tuple[str, ...] = ()
    run: Callable[[Typed], None] | str
    declare: Callable[[Any], object] = lambda parser: None
    check: Callable[[Typed], None] = lambda typed: None
    epilog: str = ""
    job: bool = False
    takes_beam_flags: bool = False
    reads_artefacts: bool = False

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add all arguments of the command to ``parser``."""
        for place in self.options:
            add_flags(parser, load(place))
        self.declare(parser)
        if self.job:
            from pipelines.engine.options import Engine

            add_flags(parser.add_argument_group("engine", "Beam's own flags are passed on unchanged"), Engine)

    def execute(self, typed: Typed) -> None:
        """Run the command with parsed arguments."""
        if isinstance(self.run, str):
            load(self.run)(*(make(load(place), typed) for place in self.options))
        else:
            self.run(typed)


def job(name: str, summary: str, options: str, run: Callable[[Typed], None] | str, epilog: str = "") -> Command:
    """Create a command that makes an artefact.

    Args:
        options: module and name of the job's options, ``module:Class``.
        run: function that runs the command, or the module whose ``plan`` returns the job's plan.
    """
    start_plan = partial(_plan_and_start, options, run) if isinstance(run, str) else run
    return Command(
        name=name, summary=summary, options=(options,), run=start_plan, epilog=epilog, job=True, takes_beam_flags=True
    )


def load(place: str) -> Any:
    """Import what ``module:name`` names."""
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)


def _plan_and_start(options: str, module: str, typed: Typed) -> None:
    start(typed, load(f"{module}:plan")(make(load(options), typed)))


def start(typed: Typed, planned: Any, shown: str = "") -> None:
    """Run a job with the engine options of the flags, and print its summary with the name ``shown`` or ``--output``."""
    from pipelines.engine.job import run_job
    from pipelines.engine.options import Engine
    from pipelines.inspect.stats import summary

    manifest = run_job(planned, make(Engine, typed, beam_flags=typed.beam_flags))
    print(f"{shown or typed.output}: {summary(manifest)}")


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
        """Return all flags of the parser."""
        return list(self._option_string_actions)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:  # type: ignore[override]
        self.declare()
        self._typed = list(args or [])
        return super().parse_known_args(args, namespace)

    def error(self, message: str) -> Any:
        if "required" in message:  # perhaps because a flag is misspelt
            unknown = [word.partition("=")[0] for word in self._typed if word.startswith("--")]
            hints = (name + nearest(name, self.flags()) for name in unknown if name not in self.flags())
            message = "; ".join([message, *(f"unknown {hint}" for hint in hints if "(" in hint)])
        super().error(message)

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            known = [str(choice) for choice in action.choices]
            hint = nearest(str(value), known)
            raise argparse.ArgumentError(action, f"unknown {value!r}{hint}; choose one of {', '.join(known)}")


def use_store_flags(rest: Sequence[str]) -> list[str]:
    """Set up S3 by the flags ``--s3_*`` of a command without Beam, and return the other arguments."""
    from corpora.storage import s3

    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    for name in s3.SETTINGS:
        parser.add_argument(f"--{name}", default=argparse.SUPPRESS)
    typed, others = parser.parse_known_args(list(rest))
    s3.use_settings(vars(typed))
    return others


def refuse_rest(typed: Typed, rest: Sequence[str]) -> None:
    """Refuse unknown arguments of a command without Beam.

    Raises:
        FarspanError: with the nearest flag.
    """
    if rest:
        hint = nearest(rest[0].partition("=")[0], typed.parser.flags())
        raise FarspanError(f"{rest[0]}: unknown argument{hint}; see farspan {typed.parser.command.name} --help")
