"""Evaluation: ``farspan evaluate`` and ``farspan submit``."""

from __future__ import annotations

from pipelines.commands.command import Command, Typed


def _check_evaluate(typed: Typed) -> None:
    """Refuse unknown metrics, and those of two flavours."""
    from pipelines.evaluation.evaluate import load_metrics

    load_metrics(typed.metrics)


COMMANDS = (
    Command(
        name="evaluate",
        summary="Score predictions with confidence intervals, and compare systems.",
        options=("pipelines.evaluation.options:Evaluate",),
        run="pipelines.evaluation.evaluate:command",
        check=_check_evaluate,
        epilog="""\
metrics: scrolls:SUBSET (gov_report, summ_screen_fd, qmsum, qasper, narrative_qa, quality, contract_nli), rouge:FLAVOUR
(scrolls, t5, pegasus_x, primera, led, files2rouge-like), f1, exact_match, quality_nearest; docs/evaluation.md says
which published numbers each is comparable with

examples:
  farspan evaluate predictions --metrics scrolls:qasper
  farspan evaluate block pooling --metrics rouge:scrolls --figure systems.svg --json systems.json
  farspan evaluate predictions --metrics exact_match --metrics quality_nearest --by hard
  farspan evaluate predictions.json --pairs pairs --split validation --metrics scrolls:qmsum""",
    ),
    Command(
        name="submit",
        summary="Write predictions as the SCROLLS server takes them.",
        options=("pipelines.evaluation.options:Submission",),
        run="pipelines.evaluation.submit:command",
        epilog="""\
examples:
  farspan submit predictions/* --output scrolls.csv
  farspan submit predictions quality=quality.json --partial --output scrolls.csv""",
    ),
)
