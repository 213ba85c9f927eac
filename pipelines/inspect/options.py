"""Options of the commands that look at artefacts and try objectives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from corpora.options import Flag
from pipelines.mask_options import CorpusFolder, ObjectiveOptions


@dataclass(frozen=True, kw_only=True)
class Choice(ObjectiveOptions):
    """What to put over a row: an objective by name on a corpus, or options over those of a mask set.

    Attributes:
        objective: on a corpus: what this objective would hide, without a mask set.
        draw: number of its draw; epoch n of a run sees draw n.
    """

    objective: str | None = None
    draw: int = 0


@dataclass(frozen=True, kw_only=True)
class Check(ObjectiveOptions):
    """Options of ``farspan check-objective``.

    Attributes:
        objective: an installed objective, e.g. span.
        rows: rows of the corpus to try it on, spread over it.
        digest: print a digest of the masks alone, for another process.
    """

    objective: Annotated[str, Flag(positional=True)]
    corpus: CorpusFolder
    rows: int = 32
    digest: Annotated[bool, Flag(hidden=True)] = False
