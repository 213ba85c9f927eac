"""What subcommands share: how they are declared, the flags of every job, and the start of one."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

FORMATTER = argparse.RawDescriptionHelpFormatter


def command(commands: Any, name: str, summary: str, run: Callable[[Any], None], example: str = "") -> Any:
    parser = commands.add_parser(
        name, help=summary, description=summary, formatter_class=FORMATTER, epilog=example, allow_abbrev=False
    )
    parser.set_defaults(run=run, makes_artefact=False)
    return parser


def job_flags(parser: Any, seed: bool = True) -> None:
    parser.set_defaults(makes_artefact=True)
    parser.add_argument("--output", required=True, metavar="DIR", help="folder to make; an unfinished one is resumed")
    if seed:
        parser.add_argument("--seed", type=int, default=0, help="of every random choice (default 0)")
    parser.add_argument("--compression", choices=["lz4", "zstd"], help="of shards; default none, for memory mapping")
    engine = parser.add_argument_group("engine", "Beam's own flags are passed on unchanged")
    engine.add_argument("--workers", type=int, default=0, help="processes (default: by the size of the job)")
    engine.add_argument(
        "--runner", default="embedded", help="embedded (default), or any Beam runner, e.g. PortableRunner, FlinkRunner"
    )


def documents_flag(parser: Any) -> None:
    parser.add_argument("--documents", required=True, metavar="DIR", help="folder made by `farspan documents`")


def split_flag(parser: Any, default: str | None = "train", explained: str = "default: train") -> Any:
    return parser.add_argument("--split", choices=["train", "held-out"], default=default, help=explained)


def sequence_flags(parser: Any) -> None:
    parser.add_argument("--sequence-length", type=int, required=True, help="encoder positions of a sequence")
    parser.add_argument("--shards", type=int, default=0, help="default: one for each 16 million tokens")
    parser.add_argument("--room-per-sequence", type=int, default=2, help="positions kept for begin and end (default 2)")
    parser.add_argument("--room-per-document", type=int, default=1, help="positions kept for separators (default 1)")


def start(options: Any, job: Any, shown: str = "") -> None:
    """Run a job with the engine of the flags and say what came of it, by the name ``shown`` (default: ``--output``)."""
    from pipelines.engine.job import run_job
    from pipelines.engine.runner import Engine
    from pipelines.inspect.stats import summary

    manifest = run_job(job, Engine(runner=options.runner, workers=options.workers, beam_flags=options.beam_flags))
    print(f"{shown or options.output}: {summary(manifest)}")
