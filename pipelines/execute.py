"""Execution of a parsed command: checks of its flags, the lock of its folder, its function, and the jobs it returns."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from corpora.errors import FarspanError, nearest
from corpora.flags import make
from corpora.reporting import Reporting, reporting
from corpora.reporting import result as tell_result
from pipelines.commands.command import Command, Typed, load
from pipelines.engine.options import EMBEDDED, Engine
from pipelines.interrupts import raise_on_interrupt
from trainer.parallel.reports import raised_alike

if TYPE_CHECKING:
    from pipelines.engine.job import Job


def run(typed: Typed, rest: Sequence[str] = ()) -> None:
    """Run the command that was typed, with Beam's flags ``rest``.

    Raises:
        FarspanError: an error that the user can fix.
    """
    with reporting(make(Reporting, typed)):
        _run(typed.parser.command, typed, rest)


def _run(command: Command, typed: Typed, rest: Sequence[str]) -> None:
    with raised_alike():
        options = command.made(typed)  # invalid options are reported before Beam is imported
        _check(command, typed, rest)
    function = load(command.run)
    raise_on_interrupt()
    if not command.job or typed.engine == "cooperative":
        _execute(command, typed, function, options)
        return
    from pipelines.engine.presence.lock import locked  # imports file systems, which --help does not need

    with locked(typed.output, typed.lease):  # before the job is planned, which may take minutes
        _execute(command, typed, function, options)


def _check(command: Command, typed: Typed, rest: Sequence[str]) -> None:
    if command.job:
        make(Engine, typed)
    if command.job and typed.engine == "cooperative":
        refuse_rest(typed, use_store_flags(rest))
    elif command.flags in ("engine", "beam"):
        from pipelines.engine.beam.flags import check_flags

        check_flags(rest, typed.parser.flags(), getattr(typed, "runner", EMBEDDED))
        if use_store_flags(rest):
            from pipelines.engine.beam.stores import use_flags  # imports Beam, which reads its own flags

            use_flags(rest)
    else:
        refuse_rest(typed, use_store_flags(rest) if command.flags == "s3" else rest)
    typed.beam_flags = tuple(rest)


def _execute(command: Command, typed: Typed, function: Callable[..., Any], options: Sequence[Any]) -> None:
    result = function(*options)
    if command.job:
        _start(typed, result)


def _start(typed: Typed, planned: Job | Iterator[Job]) -> None:
    """Run jobs with the engine options of the flags, and print the summary of what each has made."""
    from pipelines.engine.artefacts import absolute
    from pipelines.engine.job import Job
    from pipelines.engine.run import run_job
    from pipelines.engine.summary import summary

    engine = make(Engine, typed, beam_flags=typed.beam_flags)
    for job in (planned,) if isinstance(planned, Job) else planned:
        manifest = run_job(job, engine)
        output = job.output.replace(absolute(typed.output), typed.output.rstrip("/"), 1)
        tell_result(f"{output}: {summary(manifest)}", output=output, totals=dict(manifest.totals))


def use_store_flags(rest: Sequence[str]) -> list[str]:
    """Set up S3 by the flags ``--s3_*`` of a command without Beam, and return the other arguments."""
    from corpora.storage.stores import s3

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
