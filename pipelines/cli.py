"""The ``farspan`` command: parse arguments, run a command and the jobs that it returns, report errors in one line."""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from corpora.address_space import check_address_space
from corpora.errors import FarspanError, is_reporter, mark_raised_alike, nearest, one_line, out_of_memory
from corpora.options import add_flags
from corpora.printing import printable
from corpora.reporting import Reporting, Silence, note, reporting, result, suggest, tell_error
from corpora.settings import make
from pipelines.commands import WELCOME, build_parser
from pipelines.commands.command import Command, Parser, load
from pipelines.engine.options import Engine, use_store_flags
from pipelines.environment import leave_pandas_out
from pipelines.interrupts import Terminated, raise_on_interrupt

if TYPE_CHECKING:
    from pipelines.engine.job import Job


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command; after a user error, print one line and exit with status 1."""
    shown = logging.StreamHandler()
    shown.setLevel(logging.ERROR)  # as some libraries set levels of their own
    logging.basicConfig(level=logging.ERROR, handlers=[shown])  # before Beam's import, which would install another
    words = list(sys.argv[1:] if arguments is None else arguments)
    if not words:
        print(WELCOME, file=sys.stderr)
        leave(2)
    with reporting(_message_options(words)):
        try:
            flags, rest = build_parser().parse_known_args(words)
        except BrokenPipeError:  # of a flag that prints, such as --options
            leave(0)
        except SystemExit:  # of such a flag, too, or of a wrong one
            _flush()
            raise
    with reporting(make(Reporting, vars(flags))):
        _run_and_report(flags.chosen, vars(flags), rest)


def _message_options(words: Sequence[str]) -> Reporting:
    """Return the options of messages for errors in the command line itself."""
    parser = argparse.ArgumentParser(add_help=False, exit_on_error=False)
    add_flags(parser, Reporting)
    with contextlib.suppress(argparse.ArgumentError):
        return make(Reporting, vars(parser.parse_known_args(words)[0]))
    return Reporting()


def _run_and_report(command: Command, flags: Mapping[str, Any], rest: Sequence[str]) -> None:
    """Run a command and end the process with the status of its error, if any."""
    try:
        check_address_space()
        if command.flags != "none":
            leave_pandas_out()
        from objectives.api.plugins import plugin_errors

        with plugin_errors():
            options = run(command, flags, rest)
            if command.next:
                suggest(command.next_command(options[-1]))
        _flush()
    except BrokenPipeError:
        leave(0)
    except (FarspanError, OSError) as error:
        if is_reporter(error):
            tell_error(f"farspan: {printable(str(error))}")
        leave(1)
    except (MemoryError, RuntimeError) as error:
        if not out_of_memory(error):
            raise
        tell_error(
            f"farspan: out of memory ({one_line(error) or type(error).__name__}); give the machine or the limit more"
        )
        leave(1)
    except Terminated:
        note("farspan: ended by SIGTERM; finished work is kept: run the same command again to resume")
        leave(128 + signal.SIGTERM)
    except KeyboardInterrupt:
        note("farspan: interrupted; finished work is kept: run the same command again to resume")
        leave(130)


def leave(status: int) -> None:
    """Exit at once, because threads of a runner or other processes of a run may wait forever for dead ones."""
    _flush()
    with contextlib.suppress(AttributeError):
        sys.stderr.flush()
    os._exit(status) if "apache_beam" in sys.modules or _has_peers() else sys.exit(status)


def _flush() -> None:
    """Flush the standard output; if its reader has ended, redirect it for the interpreter's last flush."""
    with contextlib.suppress(AttributeError):  # None where the output was closed
        try:
            sys.stdout.flush()
        except BrokenPipeError:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, sys.stdout.fileno())
            os.close(nowhere)


def _has_peers() -> bool:
    """Return True in a process of ``torchrun`` that has joined the others."""
    distributed = sys.modules.get("torch.distributed")
    return distributed is not None and distributed.is_available() and distributed.is_initialized()


def run(
    command: Command, values: Mapping[str, Any], rest: Sequence[str] = (), spell: Callable[[str], str] = "--{}".format
) -> list[Any]:
    """Run a command and return its options, decoded from flags as argparse stores them, or from Python keywords.

    ``rest`` are Beam's flags; ``spell`` makes the name of an option in messages from that of its flag.
    """
    with reporting(make(Reporting, values, spell)):
        with mark_raised_alike():
            options = command.decode(values, spell)  # invalid ones are reported before Beam is imported
            engine = make(Engine, values, spell, beam_flags=tuple(rest)) if command.job else None
            _check(command, rest, engine)
        with Silence(partial(note, f"{command.name}: loads libraries")):
            function = load(command.run)
        raise_on_interrupt()
        if engine is None:
            function(*options)
        elif engine.estimate:
            _estimate(function, options, engine)
        elif engine.engine == "cooperative":
            _start(function, options, engine)
        else:
            from pipelines.engine.claims import lock_folder  # imports file systems, which --help does not need

            with lock_folder(options[-1].output, engine.lease):  # before the job is planned, which may take minutes
                _start(function, options, engine)
    return options


def _check(command: Command, rest: Sequence[str], engine: Engine | None) -> None:
    """Refuse flags that the command does not declare, and set up stores by those of Beam."""
    others = rest if command.flags == "none" else use_store_flags(rest)
    if engine is None or engine.engine == "cooperative":
        refuse_rest(command, others)
    else:
        from pipelines.engine.beam.flags import check_flags

        check_flags(others, Parser(command=command).flags() if others else (), engine.runner)


def _start(plan: Callable[..., Job | Iterator[Job]], options: Sequence[Any], engine: Engine) -> None:
    """Plan and run the jobs of a command, and print the summary of what each has made."""
    from corpora.printing import compare_estimate
    from pipelines.cards.card import summary
    from pipelines.engine.artefacts import absolute
    from pipelines.engine.folder import is_begun
    from pipelines.engine.run import run_job

    folder = options[-1].output
    for job in _jobs(plan, options):
        fresh, begun = not is_begun(job.output), time.monotonic()
        manifest = run_job(job, engine)
        if fresh and (comparison := compare_estimate(job.output, time.monotonic() - begun)):
            note(f"{job.output}: {comparison}")
        output = job.output.replace(absolute(folder), folder.rstrip("/"), 1)
        result(f"{output}: {summary(manifest)}", output=output, totals=dict(manifest.totals))


def _jobs(plan: Callable[..., Job | Iterator[Job]], options: Sequence[Any]) -> Iterator[Job]:
    """Plan the jobs of a command, each once the one before it has run."""
    from pipelines.engine.job import Job

    saying = partial(note, f"{options[-1].output}: plans the job")
    with Silence(saying):
        planned = plan(*options)
    jobs = iter((planned,)) if isinstance(planned, Job) else planned
    while True:
        with Silence(saying):
            job = next(jobs, None)
        if job is None:
            return
        yield job


def _estimate(plan: Callable[..., Job | Iterator[Job]], options: Sequence[Any], engine: Engine) -> None:
    """Print the estimate of a command's job; of several, that of the first, from whose output the others follow."""
    from corpora.printing import keep_estimate
    from pipelines.engine.artefacts import absolute
    from pipelines.engine.estimate import SECONDS, estimate, temporary_output
    from pipelines.engine.job import Job

    output = options[-1].output
    note(f"{output}: plans the job, then does up to about {SECONDS:.0f} s of its work in a temporary folder")
    with temporary_output(output) as folder:
        planned = plan(*options[:-1], replace(options[-1], output=folder))
        job = planned if isinstance(planned, Job) else next(planned)
        stages = ", ".join(
            f"{stage.name} {sum(task.units for task in stage.tasks):,} {stage.unit}" for stage in job.stages
        )
        note(f"{output}: {stages}")
        made = estimate(job, engine)
        name = job.output.replace(folder, output.rstrip("/"), 1)
    keep_estimate(absolute(name), vars(made))
    result(f"{name}: {made.describe()}", output=name, estimate=vars(made))
    if not isinstance(planned, Job):
        note(
            f"{output}: later jobs of this command are planned on the output of {name}; estimate again once it is done"
        )


def refuse_rest(command: Command, rest: Sequence[str]) -> None:
    """Refuse unknown arguments of a command without Beam, with the nearest flag."""
    if rest:
        flags, format = Parser(command=command).flags(), rest[0].rpartition(".")[2]
        hint = nearest(rest[0].partition("=")[0], flags)
        if "--csv" in flags and format in ("json", "csv"):
            hint = f"; --{format} takes no file: farspan {command.name} ... --{format} > {rest[0]}"
        raise FarspanError(f"{rest[0]}: unknown argument{hint}; see farspan {command.name} --help")


if __name__ == "__main__":
    main()
