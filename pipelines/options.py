"""Options shared by several jobs, each with its type, flag and help, and those of single commands."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from corpora.options import NO_FLAG, UNRECORDED, Flag
from corpora.reporting import TableFormat
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


@dataclass(frozen=True, kw_only=True)
class Runs(TableFormat):
    """Options of ``farspan runs``.

    Attributes:
        folder: folder with runs of ``farspan train``, at any depth, or a run.

    Examples:
        farspan runs runs
    """

    folder: Annotated[str, Flag(positional=True)]


@dataclass(frozen=True, kw_only=True)
class Plot:
    """Options of ``farspan plot``.

    Draws loss, held-out loss, learning rate, gradient norm and speed of runs, and marks their restarts. For each update
    whose loss is far above that of the updates before, it prints the command that shows the rows of that update. A
    folder with nothing but TensorBoard's event files can be drawn, too.

    Attributes:
        run: runs of ``farspan train``.
        figure: file to draw.
        metric: metric to draw; repeat it for several (default: all).
        over: horizontal axis: updates, or source tokens seen.
        smooth: number of updates that the smoothed line averages, at most a twentieth of the run.

    Examples:
        farspan plot runs/a runs/b --over tokens --figure curves.svg
        farspan plot runs/a --metric loss --metric held_out_loss
    """

    run: Annotated[tuple[str, ...], Flag(positional=True)]
    figure: Annotated[str, Flag(metavar="FILE.svg")] = "curves.svg"
    metric: tuple[str, ...] = ()
    over: Literal["steps", "tokens"] = "steps"
    smooth: Annotated[int, Flag(least=1)] = 25


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


FormatName = Literal[
    "megatron", "fairseq", "mds", "llm-foundry", "olmo", "datatrove", "litdata", "parquet", "megatron-bridge"
]


@dataclass(frozen=True, kw_only=True)
class Export:
    """Options of ``farspan export``.

    Documents end with the tokenizer's <eos>. In formats whose readers cut files into rows of equal length, corpus rows
    are padded to that length, so they stay rows. `docs/export.md` has a table of formats.

    Attributes:
        artefact: folder of documents, a corpus or a mask set.
        to: format of the files.
        unit: a file's items, which its readers shuffle: rows of the corpus, or parts of documents (default: rows;
            documents for documents).
        split: documents to use, if the artefact has documents.
        layout: rendering of a mask set: source and target apart, or as one row with loss on the target (default: apart
            where the format has columns for both).
        length: sequence length of the trainer, to which rows are padded (default: that of the corpus; for masks, the
            longest source and target).
        dtype: type of ids (default: the smallest that the format's readers choose for the vocabulary).
        bos: put the tokenizer's <bos> before each document.
        eos_id: id of the end of a document (default: the tokenizer's <eos>).
        bos_id: id of its beginning (default: the tokenizer's <bos>).
        pad_id: id of padding (default: the tokenizer's <pad>).
        files: number of files, or of groups of files, at most one per shard (default: one per shard).
        corpus: corpus of a mask set, if it has moved since the masks were made.

    Examples:
        farspan export corpus --to megatron --output megatron
        farspan export documents --to olmo --output olmo
        farspan export corpus --to mds --bos --output mds
        farspan export masks --to parquet --layout stream --output streams
    """

    artefact: Annotated[str, Flag(positional=True), UNRECORDED]
    to: FormatName
    output: Output
    unit: Literal["rows", "documents"] | None = None
    split: SplitName = "train"
    layout: Literal["seq2seq", "stream"] | None = None
    length: Annotated[int | None, Flag(metavar="TOKENS", least=1)] = None
    dtype: Literal["uint8", "uint16", "int32", "uint32", "int64"] | None = None
    bos: bool = False
    eos_id: Annotated[int | None, Flag(metavar="ID", least=0)] = None
    bos_id: Annotated[int | None, Flag(metavar="ID", least=0)] = None
    pad_id: Annotated[int | None, Flag(metavar="ID", least=0)] = None
    files: Annotated[int | None, Flag(metavar="N", least=1)] = None
    corpus: Annotated[str | None, Flag(metavar="DIR"), UNRECORDED] = None
