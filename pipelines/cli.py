"""The ``farspan`` command: parses arguments, runs a command, and reports user errors in one line."""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from corpora.address_space import check_address_space
from corpora.errors import FarspanError, is_reporter, one_line, out_of_memory
from corpora.options import add_flags
from corpora.printing import printable
from corpora.reporting import Reporting, note, reporting, suggest, tell_error
from corpora.settings import make
from pipelines.commands import WELCOME, build_parser
from pipelines.commands.command import Command
from pipelines.environment import leave_pandas_out
from pipelines.execute import run
from pipelines.interrupts import Terminated


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
        _run(flags.chosen, vars(flags), rest)


def _message_options(words: Sequence[str]) -> Reporting:
    """Return the options of messages for errors in the command line itself."""
    parser = argparse.ArgumentParser(add_help=False, exit_on_error=False)
    add_flags(parser, Reporting)
    with contextlib.suppress(argparse.ArgumentError):
        return make(Reporting, vars(parser.parse_known_args(words)[0]))
    return Reporting()


def _run(command: Command, flags: Mapping[str, Any], rest: Sequence[str]) -> None:
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


if __name__ == "__main__":
    main()
