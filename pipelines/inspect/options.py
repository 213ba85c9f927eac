"""Options of the commands that show artefacts and test objectives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from corpora.options import Flag
from corpora.reporting import TableFormat
from pipelines.masks.options import CorpusFolder, NamedObjective, ObjectiveOptions
from pipelines.pages.options import RowLayout


@dataclass(frozen=True, kw_only=True)
class Choice(ObjectiveOptions):
    """The objective or task shown on a row: one by name, or changed options for a mask set.

    Attributes:
        objective: for a corpus: show what this objective would hide, without a mask set.
        task: for pairs: show the source and target that this task, or one of the presets, makes of them.
        draw: number of the draw; epoch n of a run uses draw n.
    """

    objective: str | None = None
    task: str | None = None
    draw: Annotated[int, Flag(least=0)] = 0


_CORPUS = Flag(help="folder of a mask set's corpus (default: the one it was made from)")
_DOCUMENTS = Flag(help="folder of the documents of pairs (default: those they were made from)")
_TITLED = Flag(help="folder of the documents of pairs, or of a corpus with titles (default: those they were made from)")


@dataclass(frozen=True, kw_only=True)
class Show(RowLayout):
    """Options of ``farspan show``.

    Attributes:
        artefact: folder of documents, a corpus, masks, pairs or predictions; or a run of `farspan train`, with --step.
        row: number of the row (default: 0; of an update, all of its rows).
        width: characters to show of each text; 0 for all (default: all, but 300 of each document of a pair).
        figure: draw the row in colour instead of printing it.
        choice: what to show on the row.
        step: of a run: show the rows that this update saw, as the model saw them.
        rank: of a run: only the rows of this process.

    Examples:
        farspan show documents --row 3 --width 500
        farspan show masks --row 3 --width 2000
        farspan show corpus --objective principal_sentences --preset pegasus
        farspan show masks --set target_length=512
        farspan show masks --layout stream
        farspan show pairs --row 3 --width 500
        farspan show pairs --task bart_ls --set query_length=64
        farspan show run --step 1200 --width 500
    """

    artefact: Annotated[str, Flag(positional=True)]
    row: int | None = None
    corpus: Annotated[str | None, _CORPUS] = None
    documents: Annotated[str | None, _TITLED] = None
    width: Annotated[int | None, Flag(least=0)] = None
    figure: Annotated[str | None, Flag(metavar="FILE.svg")] = None
    step: Annotated[int | None, Flag(metavar="N")] = None
    rank: Annotated[int | None, Flag(metavar="R")] = None
    choice: Choice = Choice()


@dataclass(frozen=True, kw_only=True)
class Stats(TableFormat):
    """Options of ``farspan stats``.

    Attributes:
        artefact: folder of any artefact.
        figure: draw the distributions of lengths, sizes and relatedness.
        sample: number of sequences read for redundancy and similarity.
        vectors: folder made by `farspan embed`, for the similarity of documents inside sequences.
        lengths: for pairs: source lengths in tokens, separated by commas; the pairs that each would cut are counted
            (default: 4096,16384).

    Examples:
        farspan stats documents corpus masks
        farspan stats pairs --lengths 128,1024
    """

    artefact: Annotated[tuple[str, ...], Flag(positional=True)]
    figure: Annotated[str | None, Flag(metavar="FILE.png")] = None
    sample: Annotated[int, Flag(least=1)] = 256
    vectors: Annotated[str | None, Flag(metavar="DIR")] = None
    lengths: Annotated[tuple[int, ...], Flag(metavar="N,N", separated=True, least=1)] = ()


@dataclass(frozen=True, kw_only=True)
class Verify:
    """Options of ``farspan verify``.

    Attributes:
        artefact: folders of any artefacts, or of training runs.
    """

    artefact: Annotated[tuple[str, ...], Flag(positional=True)]
    corpus: Annotated[str | None, _CORPUS] = None
    documents: Annotated[str | None, _DOCUMENTS] = None


@dataclass(frozen=True, kw_only=True)
class Check(NamedObjective):
    """Options of ``farspan check-objective``.

    Checks the properties that training, verification and resuming rely on: masks depend only on key, options and row,
    spans lie inside documents, lengths are correct, and the text can be restored. Exit status 1 if a law is broken.

    Attributes:
        rows: number of rows to test it on, spread over the corpus.
        digest: print only a digest of the masks, for comparison between processes.

    Examples:
        farspan check-objective my_objective --corpus corpus
        farspan check-objective span --preset t5 --set density=0.3 --corpus corpus --rows 100
    """

    corpus: CorpusFolder
    rows: Annotated[int, Flag(least=1)] = 32
    digest: Annotated[bool, Flag(hidden=True)] = False


@dataclass(frozen=True, kw_only=True)
class Tasks:
    """Options of ``farspan tasks``.

    Attributes:
        task: a task or preset to explain (default: list them all).

    Examples:
        farspan tasks
        farspan tasks bart_ls
    """

    task: Annotated[str | None, Flag(positional=True)] = None
