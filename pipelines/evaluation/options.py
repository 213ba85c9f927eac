"""Options of ``farspan evaluate`` and ``farspan submit``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from corpora.options import Flag, utf8
from objectives.metrics.flavours import ANSWERS, FLAVOURS, SCROLLS

_METRICS_HELP = (
    f"metric: scrolls:SUBSET ({', '.join(SCROLLS)}), rouge:FLAVOUR ({', '.join(FLAVOURS)}), {', '.join(ANSWERS)}; "
    "repeat it for several of one flavour. docs/evaluation.md lists the published numbers that each is comparable with"
)


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """Options of evaluating predictions.

    Attributes:
        metrics: names of metrics, with one flavour of ROUGE at most.
        pairs: folder of the pairs, if it has moved since the predictions were made; needed for JSON files.
        documents: folder of their documents, if it has moved since the pairs were made.
        split: split of the pairs; needed for JSON files.
        by: attribute of the pairs, e.g. hard; the pairs with each value of it are also scored separately; repeatable:
            two, e.g. length and depth, are crossed.
        bins: number of groups of about equal size by the length of the source, or by an attribute with many numbers.
        resamples: number of resamples of the bootstrap.
        seed: seed of the bootstrap.
    """

    metrics: Annotated[tuple[str, ...], Flag(metavar="NAME", help=_METRICS_HELP)]
    pairs: Annotated[str | None, Flag(metavar="DIR")] = None
    documents: Annotated[str | None, Flag(metavar="DIR")] = None
    split: str | None = None
    by: Annotated[tuple[str, ...], Flag(metavar="ATTRIBUTE")] = ()
    bins: Annotated[int, Flag(least=1)] = 4
    resamples: Annotated[int, Flag(least=40)] = 1_000
    seed: int = 0


@dataclass(frozen=True, kw_only=True)
class Evaluate:
    """Arguments of ``farspan evaluate``.

    Attributes:
        predictions: folders made by `farspan generate`, or JSON files of {"id": "text"}.
        evaluation: metrics, pairs, groups and bootstrap.
        json: write the table as JSON.
        figure: draw the intervals, and the scores by the length of the documents; with two --by a heat map of both.

    Examples:
        farspan evaluate predictions --metrics scrolls:qasper
        farspan evaluate block pooling --metrics rouge:scrolls --figure systems.svg --json systems.json
        farspan evaluate predictions --metrics exact_match --metrics quality_nearest --by hard
        farspan evaluate answers --metrics all --by length --by depth --figure heat.svg
        farspan evaluate predictions.json --pairs pairs --split validation --metrics scrolls:qmsum
    """

    predictions: Annotated[tuple[str, ...], Flag(positional=True)]
    evaluation: Evaluation
    json: Annotated[str | None, Flag(metavar="FILE.json")] = None
    figure: Annotated[str | None, Flag(metavar="FILE.svg")] = None


@dataclass(frozen=True, kw_only=True)
class Submission:
    """Arguments of ``farspan submit``.

    Attributes:
        predictions: folders made by `farspan generate`, or JSON files of {"id": "text"}; SUBSET= before
            one, e.g. qasper=, names the data set of SCROLLS if the pairs do not.
        output: file to write; the same is written to FILE.json.
        partial: write files that the server does not accept, with some subsets only or of another split.

    Examples:
        farspan submit predictions/* --output scrolls.csv
        farspan submit predictions quality=quality.json --partial --output scrolls.csv
    """

    predictions: Annotated[tuple[str, ...], Flag(positional=True, metavar="[SUBSET=]G", convert=utf8)]
    output: Annotated[str, Flag(metavar="FILE.csv")]
    partial: bool = False
