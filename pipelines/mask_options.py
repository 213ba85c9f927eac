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


@dataclass(frozen=True, kw_only=True)
class Masking(ObjectiveOptions):
    """Options of ``farspan mask``.

    Attributes:
        objective: an installed objective, e.g. span, or one of the presets, e.g. pegasus.
        draws: independent masks of each row, one for each of N epochs; epoch e of a training run reads draw e modulo N.
    """

    objective: Annotated[str, Flag(positional=True)]
    corpus: CorpusFolder
    output: Output
    draws: Annotated[int, Flag(metavar="N")] = 1
    compression: Compression = None
