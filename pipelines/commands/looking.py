"""Looking at what there is: ``farspan show``, ``stats``, ``verify``, ``finalize``."""

from __future__ import annotations

import json
from typing import Any

from corpora.errors import FarspanError
from corpora.printing import printable
from corpora.settings import assignment
from pipelines.commands.masks import objective_flags
from pipelines.commands.shared import command

_SHOW_EXAMPLES = """\
examples:
  farspan show masks --row 3 --width 2000
  farspan show corpus --objective principal_sentences --preset pegasus
  farspan show masks --set target_length=512"""


def add_looking(commands: Any) -> None:
    parser = command(
        commands, "show", "Show one row: documents, hidden text and why, source and target.", _run_show, _SHOW_EXAMPLES
    )
    parser.add_argument("artefact", help="folder of a corpus or mask set")
    parser.add_argument("--row", type=int, default=0, help="default 0")
    parser.add_argument("--corpus", help="where a mask set's corpus lies now (default: where its manifest says)")
    parser.add_argument("--width", type=int, default=0, help="characters to show of each text, 0 for all (default)")
    parser.add_argument("--figure", metavar="FILE.svg", help="draw it in colour instead of printing it")
    parser.add_argument("--objective", help="on a corpus: what this objective would hide, without a mask set")
    parser.add_argument("--seed", type=int, default=0, help="of its random choices (default 0)")
    parser.add_argument("--draw", type=int, default=0, help="which of its draws, as epochs see them (default 0)")
    objective_flags(parser)

    parser = command(commands, "stats", "Sizes, waste and lengths of an artefact.", _run_stats)
    parser.add_argument("artefact", nargs="+", help="folder of any artefact")
    parser.add_argument("--figure", metavar="FILE.png", help="draw the distributions of lengths, sizes and relatedness")
    parser.add_argument("--sample", type=int, default=256, help="sequences read for redundancy (default 256)")
    parser.add_argument("--vectors", metavar="DIR", help="made by `farspan embed`: similarity inside sequences")
    parser.add_argument("--json", action="store_true", help="numbers for a program")

    parser = command(commands, "verify", "Check checksums, structure and meaning of artefacts and runs.", _run_verify)
    parser.add_argument("artefact", nargs="+", help="folders of any artefacts, or of training runs")
    parser.add_argument("--corpus", help="where a mask set's corpus lies now (default: where its manifest says)")

    parser = command(commands, "finalize", "Write the manifest of a job whose driver went away.", _run_finalize)
    parser.add_argument("output", help="folder of the job")
    parser.add_argument(
        "--error-budget",
        type=float,
        default=0.01,
        help="tolerated share of bad records, of damaged files and of lost bytes, each for itself (default 0.01)",
    )


def _run_show(options: Any) -> None:
    from pipelines.inspect.options import Choice
    from pipelines.inspect.show import show

    chosen = dict(assignment(text) for text in options.set)
    choice = Choice(
        objective=options.objective,
        preset=options.preset,
        options=chosen,
        scorer=options.scorer,
        seed=options.seed,
        draw=options.draw,
    )
    show(options.artefact, options.row, options.corpus, options.width, choice, figure=options.figure)
    if options.figure:
        print(f"figure: {options.figure}")


def _run_stats(options: Any) -> None:
    from pipelines.inspect.distributions import distributions, draw
    from pipelines.inspect.stats import print_stats, statistics

    found = {folder: list(distributions(folder, options.sample, options.vectors)) for folder in options.artefact}
    numbers = [statistics(folder, columns) for folder, columns in found.items()]
    if options.json:
        print(json.dumps(numbers, indent=1))
    else:
        print_stats(numbers)
    if options.figure:
        draw([(folder, one) for folder, columns in found.items() for one in columns], options.figure)
        print(f"figure: {options.figure}")


def _run_verify(options: Any) -> None:
    from pipelines.inspect.verify import verify

    damaged = 0
    for folder in options.artefact:
        problems = verify(folder, options.corpus)
        damaged += bool(problems)
        for problem in problems:
            print(printable(f"{folder}: {problem}"))
        if not problems:
            print(f"{folder}: sound")
    if damaged:
        raise FarspanError(
            f"{damaged} of {len(options.artefact)} folders are damaged; copy or make artefacts again; a run goes on "
            "from its newest whole checkpoint"
        )


def _run_finalize(options: Any) -> None:
    from pipelines.engine.finalize import finalize
    from pipelines.inspect.stats import summary

    print(f"{options.output}: {summary(finalize(options.output, options.error_budget))}")
