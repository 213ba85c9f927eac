"""Masks: ``farspan mask``."""

from __future__ import annotations

import argparse
import inspect
import json
from typing import Any

from corpora.errors import FarspanError
from corpora.settings import assignment
from pipelines.commands.shared import command, job_flags, start

_SHOWN = 3  # problems of a law

_EXAMPLES = """\
objectives: span, principal_sentences, entity_pyramid, model_based, cross_document, and those of other packages;
`farspan mask OBJECTIVE --options` explains one, with its options and presets

examples:
  farspan mask span --preset bart_ls_mixed --corpus corpus --output masks
  farspan mask principal_sentences --preset longt5_code --set target_length=512 --corpus corpus --output masks
  farspan mask model_based --preset bart_ls --scorer runs/scorer --corpus corpus --output masks"""


def add_mask(commands: Any) -> None:
    parser = command(commands, "mask", "Choose what an objective hides in each sequence.", _run_mask, _EXAMPLES)
    parser.add_argument("objective", help="an installed objective, e.g. span")
    parser.add_argument("--options", action=_Explain, help="explain the objective, its options and presets, and stop")
    parser.add_argument("--corpus", required=True, metavar="DIR", help="folder made by `farspan corpus`")
    objective_flags(parser)
    parser.add_argument(
        "--draws", type=int, default=1, metavar="N", help="masks of each row, one for each of N epochs (default 1)"
    )
    job_flags(parser)


_CHECK_EXAMPLES = """\
Tries what training, verification and resuming rely on: masks that depend on key, options and row alone, spans inside
documents, true lengths, text that comes back. Exit status 1 if a law is broken.

examples:
  farspan check-objective my_objective --corpus corpus
  farspan check-objective span --preset t5 --set density=0.3 --corpus corpus --rows 100"""


def add_check_objective(commands: Any) -> None:
    parser = command(
        commands, "check-objective", "Try the laws of objectives on one, ours or your own.", _run_check, _CHECK_EXAMPLES
    )
    parser.add_argument("objective", help="an installed objective, e.g. span")
    parser.add_argument("--corpus", required=True, metavar="DIR", help="folder made by `farspan corpus`")
    objective_flags(parser)
    parser.add_argument("--seed", type=int, default=0, help="of its random choices (default 0)")
    parser.add_argument("--rows", type=int, default=32, help="of the corpus to try it on, spread over it (default 32)")
    parser.add_argument("--digest", action="store_true", help=argparse.SUPPRESS)  # of the masks, for another process


def objective_flags(parser: Any) -> None:
    """How an objective is set up."""
    parser.add_argument("--preset", help="options of a published system, e.g. t5, bart_ls, pegasus, primera")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="override an option; null for none; repeatable"
    )
    parser.add_argument(
        "--scorer",
        metavar="MODEL",
        help="masked language model for model_based: a run of `farspan train`, or a Hugging Face folder or name",
    )


class _Explain(argparse.Action):
    """Like ``--help``, of the objective named before it."""

    def __init__(self, option_strings: Any, dest: str, help: str) -> None:
        super().__init__(option_strings, dest, nargs=0, help=help)

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: Any = None) -> None:
        name = getattr(namespace, "objective", None)
        try:
            print(explain(name) if name else "name the objective first: farspan mask span --options")
        except FarspanError as error:
            parser.exit(1, f"farspan: {error}\n")
        parser.exit()


def explain(name: str) -> str:
    """What an objective says of itself: its description, options with their defaults, and presets.

    Raises:
        FarspanError: no such objective.
    """
    from objectives.api.protocol import objective_factory

    factory = objective_factory(name)
    told = inspect.cleandoc(factory.__doc__ or "").partition("\nRaises:")[0].rstrip()
    lines = [told.replace("``", "").replace("Attributes:", "options:"), "", "defaults:"]
    for option, parameter in inspect.signature(factory).parameters.items():
        if parameter.default is not parameter.empty:
            lines.append(f"  {option} = {_spelled(parameter.default)}")
    lines += ["", "presets:"]
    for preset, options in getattr(factory, "presets", {}).items():
        lines.append(f"  {preset}: {', '.join(f'{key}={_spelled(value)}' for key, value in options.items())}")
    return "\n".join(lines)


def _spelled(value: Any) -> str:
    """A value as ``--set`` takes it, for reading: floats of few digits."""
    return json.dumps(json.loads(json.dumps(value), parse_float=lambda digits: float(f"{float(digits):.6g}")))


def _run_check(options: Any) -> None:
    from objectives.api.laws import digest
    from pipelines.inspect.check_objective import check_laws, trial
    from pipelines.inspect.options import Check

    check = Check(
        corpus=options.corpus,
        objective=options.objective,
        preset=options.preset,
        options=dict(map(assignment, options.set)),
        scorer=options.scorer,
        seed=options.seed,
        rows=options.rows,
    )
    if options.digest:
        print(digest(trial(check)))
        return
    failed = []
    for law, problems in check_laws(check):
        print(f"{'BROKEN' if problems else 'holds '}  {law}", flush=True)
        for problem in problems[:_SHOWN]:
            print(f"        {problem}")
        if len(problems) > _SHOWN:
            print(f"        ... and {len(problems) - _SHOWN} more")
        failed.append(bool(problems))
    if any(failed):
        raise FarspanError(f"objective {options.objective} breaks {sum(failed)} of {len(failed)} laws")


def _run_mask(options: Any) -> None:
    from pipelines import masks

    job = masks.plan(
        masks.Masking(
            corpus=options.corpus,
            output=options.output,
            objective=options.objective,
            preset=options.preset,
            options=dict(assignment(text) for text in options.set),
            scorer=options.scorer,
            seed=options.seed,
            draws=options.draws,
            compression=options.compression,
        )
    )
    start(options, job)
