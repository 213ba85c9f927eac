"""Masks: ``farspan mask``."""

from __future__ import annotations

from typing import Any

from pipelines.commands.shared import assignment, command, job_flags, start


def add_mask(commands: Any) -> None:
    parser = command(commands, "mask", "Choose what an objective hides in each sequence.", _run_mask)
    parser.add_argument("objective", help="an installed objective, e.g. span")
    parser.add_argument("--corpus", required=True, metavar="DIR", help="folder made by `farspan corpus`")
    parser.add_argument("--preset", help="options of a published system, e.g. t5, bart_ls, bart_ls_mixed")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="override an option; repeatable"
    )
    job_flags(parser)


def _run_mask(options: Any) -> None:
    from pipelines import mask

    chosen = dict(assignment(text) for text in options.set)
    job = mask.plan(
        mask.Masking(
            options.corpus,
            options.output,
            options.objective,
            options.preset,
            chosen,
            options.seed,
            options.compression,
        )
    )
    start(options, job)
