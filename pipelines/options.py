"""Options shared by several jobs, each with its type, flag and help, and those of ``farspan push`` and ``generate``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from corpora.options import NO_FLAG, UNRECORDED, Flag
from trainer.options import Device, Precision

SplitName = Literal["train", "held-out"]

Folder = Annotated[str, Flag(metavar="DIR"), UNRECORDED]
Output = Annotated[str, Flag(metavar="DIR", help="folder to create; an unfinished job in it is resumed"), UNRECORDED]
DocumentsFolder = Annotated[str, Flag(metavar="DIR", help="folder made by `farspan documents`"), UNRECORDED]
Split = Annotated[SplitName, Flag(help="documents to use")]
Seed = Annotated[int, Flag(help="seed of every random choice"), UNRECORDED]
Shards = Annotated[int, Flag(help="number of shards; 0 for one per 16 million tokens", least=0)]
Threads = Annotated[
    int,
    Flag(help="threads per worker; part of the configuration, because they change floating-point rounding", least=1),
]
Compression = Annotated[
    Literal["lz4", "zstd"] | None, Flag(help="compression of shards (default: none, for memory mapping)")
]
ErrorBudget = Annotated[
    float,
    Flag(
        help="tolerated share of bad records, of damaged files and of lost bytes; each is counted separately",
        least=0,
        most=1,
    ),
    UNRECORDED,
]
FanIn = Annotated[int, NO_FLAG, UNRECORDED]

FAN_IN = 64  # maximum number of spill files read per bucket before merging; does not affect the output


@dataclass(frozen=True, kw_only=True)
class Push:
    """Options of ``farspan push``.

    Attributes:
        artefact: folder of a finished artefact, or of a model that ``farspan convert --to huggingface`` wrote.
        target: hf://datasets/OWNER/NAME for an artefact, hf://OWNER/NAME for a model; @BRANCH and /FOLDER may follow.
        private: create the repository as private; an existing one is not changed.
        message: title of the commits (default: the name of the folder).

    Examples:
        farspan push my/corpus hf://datasets/OWNER/long-corpus
        farspan push my/masks hf://datasets/OWNER/long-corpus/masks --private
        farspan push my/exported hf://OWNER/my-model
    """

    artefact: Annotated[str, Flag(positional=True)]
    target: Annotated[str, Flag(positional=True)]
    private: bool = False
    message: str | None = None


@dataclass(frozen=True, kw_only=True)
class Generating:
    """Options of ``farspan generate``.

    The task and the options of generation are those of the run; --set and --generation override single ones. A folder
    has neither, so name the task. A stopped command is resumed by the same command, with any number of processes.
    OUTPUT/predictions.json has the texts by pair id.

    Attributes:
        model: run of ``farspan train``, a checkpoint of it, model folder of farspan, or folder of Hugging Face.
        pairs: folder made by ``farspan pairs``.
        documents: folder of their documents (default: the one that they were made from).
        split: split of the pairs to generate for.
        checkpoint: checkpoint of a run: newest, best (by checkpoint.best of its recipe) or a step (default: newest).
        task: task that renders the pairs, or a preset of one (default: the task of the run).
        preset: preset of the task.
        options: overrides an option of the task, e.g. source_length=4096; the value null stands for None; repeatable.
        generation: overrides an option of generation, e.g. beams=4 (default: evaluation.generation of the run's
            recipe); repeatable.
        precision: bf16 halves the model's memory; texts then depend on the device and a little on the batches.
        shard_rows: pairs in a shard, the unit of work: a stopped job repeats no more than its unfinished shards.
        batch_positions: positions of encoder and decoder to generate with at once; larger needs more memory.
        device: where the model runs.
        threads: threads per process on a processor; part of the configuration, because they change floating-point
            rounding. With one thread, texts do not depend on --batch-positions.

    Examples:
        farspan generate run --pairs pairs --output predictions --checkpoint best
        farspan generate run --pairs pairs --split test --output predictions --generation beams=8
        farspan generate led-arxiv --task led --pairs pairs --output predictions --generation max_tokens=512
        torchrun --nproc-per-node 8 -m pipelines generate run --pairs pairs --output predictions
    """

    model: Annotated[str, Flag(positional=True, metavar="RUN")]
    pairs: Annotated[str, Flag(metavar="DIR"), UNRECORDED]
    output: Output
    documents: Annotated[str | None, Flag(metavar="DIR"), UNRECORDED] = None
    split: Annotated[str, Flag(metavar="NAME")] = "validation"
    checkpoint: Annotated[str | None, Flag(metavar="WHICH"), UNRECORDED] = None
    task: Annotated[str | None, Flag(metavar="NAME")] = None
    preset: Annotated[str | None, Flag(metavar="NAME"), UNRECORDED] = None
    options: Annotated[Mapping[str, Any], Flag(name="set", metavar="KEY=VALUE"), UNRECORDED] = field(
        default_factory=dict
    )
    generation: Annotated[Mapping[str, Any], Flag(metavar="KEY=VALUE")] = field(default_factory=dict)
    precision: Precision = "fp32"
    shard_rows: Annotated[int, Flag(metavar="N", least=1)] = 128
    batch_positions: Annotated[int, Flag(metavar="N", least=1), UNRECORDED] = 1 << 16
    device: Annotated[Device, UNRECORDED] = "auto"
    threads: Annotated[int, Flag(metavar="N", least=1)] = 1
    compression: Compression = None
