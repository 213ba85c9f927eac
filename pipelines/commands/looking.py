"""Looking at what there is: ``farspan show``, ``stats``, ``verify``, ``finalize``."""

from __future__ import annotations

import json
from typing import Any

from corpora.errors import FarspanError
from pipelines.commands.shared import command


def add_looking(commands: Any) -> None:
    parser = command(commands, "show", "Show one row: documents, hidden text, source and target.", _run_show)
    parser.add_argument("artefact", help="folder of a corpus or mask set")
    parser.add_argument("--row", type=int, default=0, help="default 0")
    parser.add_argument("--corpus", help="where a mask set's corpus lies now (default: where its manifest says)")
    parser.add_argument("--width", type=int, default=0, help="characters to show of each text, 0 for all (default)")

    parser = command(commands, "stats", "Sizes, waste and lengths of an artefact.", _run_stats)
    parser.add_argument("artefact", nargs="+", help="folder of documents, corpus or mask set")
    parser.add_argument("--figure", metavar="FILE.png", help="draw the length distributions")
    parser.add_argument("--json", action="store_true", help="numbers for a program")

    parser = command(commands, "verify", "Check checksums, structure and meaning of artefacts.", _run_verify)
    parser.add_argument("artefact", nargs="+", help="folders")
    parser.add_argument("--corpus", help="where a mask set's corpus lies now (default: where its manifest says)")

    parser = command(commands, "finalize", "Write the manifest of a job whose driver went away.", _run_finalize)
    parser.add_argument("output", help="folder of the job")
    parser.add_argument(
        "--error-budget", type=float, default=0.01, help="tolerated share of bad records (default 0.01)"
    )


def _run_show(options: Any) -> None:
    from pipelines.show import show

    show(options.artefact, options.row, options.corpus, options.width)


def _run_stats(options: Any) -> None:
    from pipelines.stats import draw_lengths, print_stats, statistics

    found = [statistics(folder) for folder in options.artefact]
    if options.json:
        print(json.dumps(found, indent=1))
    else:
        print_stats(found)
    if options.figure:
        draw_lengths(options.artefact, options.figure)
        print(f"figure: {options.figure}")


def _run_verify(options: Any) -> None:
    from pipelines.verify import verify_artefact

    damaged = 0
    for folder in options.artefact:
        problems = verify_artefact(folder, options.corpus)
        damaged += bool(problems)
        for problem in problems:
            print(f"{folder}: {problem}")
        if not problems:
            print(f"{folder}: sound")
    if damaged:
        raise FarspanError(f"{damaged} of {len(options.artefact)} artefacts are damaged; copy or make them again")


def _run_finalize(options: Any) -> None:
    from pipelines.job import finalize
    from pipelines.stats import summary

    print(f"{options.output}: {summary(finalize(options.output, options.error_budget))}")
