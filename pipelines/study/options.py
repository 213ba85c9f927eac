"""Options of ``farspan study``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from corpora.options import Flag


@dataclass(frozen=True, kw_only=True)
class Study:
    """Options of ``farspan study``.

    A study file lists commands as stages, the axes along which their options vary, seeds, and the metrics to compare;
    docs/study.md describes it. Each stage is made once for all arms that share it, in OUTPUT/stages. The same command
    resumes a stopped study, and several processes of it, on any machines that share OUTPUT, divide the work.

    Attributes:
        file: the study, a TOML file.
        output: folder of the study.
        dry_run: print the stages, what exists and what would run, and stop.
        only: work only on stages whose ARM/STAGE matches, and on what they need; `*` matches anything; repeatable.
        jobs: processes on this machine.
        update: accept a changed file; stages that it does not change are kept.
        figure: draw the differences, a panel for each metric.

    Examples:
        farspan study study.toml --output study --dry-run
        farspan study study.toml --output study --jobs 2 --figure study.svg
        farspan study study.toml --output study --only 'linked/*'
        srun --ntasks=16 farspan study study.toml --output study
    """

    file: Annotated[str, Flag(positional=True, metavar="STUDY.toml")]
    output: Annotated[str, Flag(metavar="DIR", help="folder to create; an unfinished study in it is resumed")]
    dry_run: bool = False
    only: Annotated[tuple[str, ...], Flag(metavar="ARM/STAGE")] = ()
    jobs: Annotated[int, Flag(metavar="N", least=1)] = 1
    update: bool = False
    figure: Annotated[str | None, Flag(metavar="FILE.svg")] = None
