"""The ``farspan`` command: parse, run, and end a user's error with one clear line."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from argparse import Namespace
from collections.abc import Sequence

from corpora.errors import FarspanError
from corpora.printing import printable
from pipelines.commands import build_parser
from pipelines.engine.lock import locked

# Commands that read this machine's disk and run no job.
LOCAL = ("check-objective", "show", "stats", "verify", "convert", "train")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command; user errors end with one clear line and status 1."""
    logging.basicConfig(level=logging.ERROR)  # before Beam's import, which would install a handler of its own
    parser = build_parser()
    options, rest = parser.parse_known_args(arguments)
    try:
        run(options, rest)
    except FarspanError as error:
        print(f"farspan: {printable(str(error))}", file=sys.stderr)
        leave(1)
    except BrokenPipeError:
        leave(0)
    except OSError as error:
        print(f"farspan: {printable(str(error))}", file=sys.stderr)
        leave(1)
    except KeyboardInterrupt:
        print("farspan: interrupted; finished work is kept, the same command resumes it", file=sys.stderr)
        leave(130)


def run(options: Namespace, rest: Sequence[str] = ()) -> None:
    """Run the command that ``options`` of its parser describe, with Beam's flags ``rest``.

    Raises:
        FarspanError: what the user can cure.
    """
    if options.command not in LOCAL:
        from pipelines.engine.runner import check_flags
        from pipelines.engine.stores import use_flags

        check_flags(rest, [f"--{name.replace('_', '-')}" for name in vars(options)])
        use_flags(rest)
    elif rest:
        raise FarspanError(f"{rest[0]}: unknown argument; see farspan {options.command} --help")
    options.beam_flags = tuple(rest)
    # before the job is planned, which may take minutes
    with locked(options.output) if options.makes_artefact else contextlib.nullcontext():
        options.run(options)


def leave(status: int) -> None:
    """End now: a runner's threads may still wait for a worker that died."""
    with contextlib.suppress(BrokenPipeError):
        sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status) if "apache_beam" in sys.modules else sys.exit(status)


if __name__ == "__main__":
    main()
