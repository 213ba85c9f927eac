"""Options of what to show: artefacts and updates, and what is laid beside their rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from corpora.options import NO_FLAG, Flag

_DIR, _NAME = "DIR", "NAME"


@dataclass(frozen=True, kw_only=True)
class RowLayout:
    """The layout in which rows are shown as a model gets them.

    Attributes:
        layout: layout of a corpus's rows: source and target, or as one stream, as decoders get them.
    """

    layout: Literal["source_target", "stream"] = "source_target"


@dataclass(frozen=True, kw_only=True)
class Selection(RowLayout):
    """Artefacts and updates to show, and what to lay beside their rows.

    Attributes:
        artefact: folders of corpora, mask sets, documents, pairs or predictions; or a run of `farspan train`, with
            --step.
        masks: mask sets to lay beside their corpus; those among the artefacts count, too.
        objective: an objective, or one of the presets, whose masks are drawn and laid beside each corpus; repeatable.
        seed: seed of drawn masks.
        task: for pairs: also the source and target that this task, or one of the presets, makes of them.
        corpus: folder of the mask sets' corpus (default: the one they were made from).
        documents: folder of the documents of pairs, or of a corpus with titles (default: those they were made from).
        neighbours: folder of the neighbours of a linked corpus (default: those it was made from).
        step: of a run: the rows that this update saw, as the model saw them.
        rank: of a run: only the rows of this process.
        preset: preset of the objective or task.
        options: options of the objective or task, or of mask sets that are adjusted.
        scorer: model of the objective.
        links: also show how the documents of linked rows are related.
    """

    artefact: Annotated[tuple[str, ...], Flag(positional=True)]
    masks: Annotated[tuple[str, ...], Flag(metavar=_DIR, several=True)] = ()
    objective: Annotated[tuple[str, ...], Flag(metavar=_NAME)] = ()
    seed: int = 0
    task: Annotated[str | None, Flag(metavar=_NAME)] = None
    corpus: Annotated[str | None, Flag(metavar=_DIR)] = None
    documents: Annotated[str | None, Flag(metavar=_DIR)] = None
    neighbours: Annotated[str | None, Flag(metavar=_DIR)] = None
    step: Annotated[int | None, Flag(metavar="N")] = None
    rank: Annotated[int | None, Flag(metavar="R")] = None
    preset: Annotated[str | None, NO_FLAG] = None
    options: Annotated[Mapping[str, Any], NO_FLAG] = field(default_factory=dict)
    scorer: Annotated[str | None, NO_FLAG] = None
    links: Annotated[bool, NO_FLAG] = True
