"""Options of objectives and of the job that stores masks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from corpora.options import UNRECORDED, Flag
from pipelines.options import Compression, Output, Seed

CorpusFolder = Annotated[str, Flag(metavar="DIR", help="folder made by `farspan corpus`"), UNRECORDED]


@dataclass(frozen=True, kw_only=True)
class ObjectiveOptions:
    """Preset, options, scorer and seed of an objective.

    Attributes:
        preset: options of a published system, e.g. t5, bart_ls, pegasus, primera.
        options: overrides an option of the preset; the value null stands for None; repeatable.
        scorer: masked language model for model_based: a run of ``farspan train``, or a Hugging Face folder or name.
    """

    preset: Annotated[str | None, UNRECORDED] = None
    options: Annotated[Mapping[str, Any], Flag(name="set", metavar="KEY=VALUE")] = field(default_factory=dict)
    scorer: Annotated[str | None, Flag(metavar="MODEL"), UNRECORDED] = None
    seed: Seed = 0


def _objective_help() -> str:
    from objectives.api.plugins import OBJECTIVE_GROUP, entries

    return f"{', '.join(sorted(entries(OBJECTIVE_GROUP)))}, or one of the presets, e.g. pegasus"


@dataclass(frozen=True, kw_only=True)
class NamedObjective(ObjectiveOptions):
    """An objective, given by its name or by the name of one of its presets.

    Attributes:
        objective: an installed objective, e.g. span, or one of the presets, e.g. pegasus.
    """

    objective: Annotated[str, Flag(positional=True, help=_objective_help)]

    def __post_init__(self) -> None:
        from objectives.api.protocol import OBJECTIVES, load_objective  # compiled code, which help does not need

        objective, preset = OBJECTIVES.resolve(self.objective, self.preset)
        load_objective(objective, preset, self.options)
        object.__setattr__(self, "objective", objective)
        object.__setattr__(self, "preset", preset)


@dataclass(frozen=True, kw_only=True)
class Masking(NamedObjective):
    """Options of ``farspan mask``.

    `farspan mask OBJECTIVE --options` explains an objective, with its options and presets.

    Attributes:
        draws: independent masks of each row, one for each of N epochs; epoch e of a training run reads draw e modulo N.

    Examples:
        farspan mask span --preset bart_ls_mixed --corpus corpus --output masks
        farspan mask pegasus --corpus corpus --output masks
        farspan mask principal_sentences --preset longt5_code --set target_length=512 --corpus corpus --output masks
        farspan mask model_based --preset bart_ls --scorer runs/scorer --corpus corpus --output masks
    """

    corpus: CorpusFolder
    output: Output
    draws: Annotated[int, Flag(metavar="N")] = 1
    compression: Compression = None
