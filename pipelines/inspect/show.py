"""``farspan show``: print a row as text and as the model sees it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.text import Text

from corpora.errors import FarspanError
from corpora.printing import printable, row_numbers
from corpora.reporting import result
from corpora.schemas.corpus import Corpus
from corpora.schemas.pairs import PairSet
from corpora.schemas.predictions import PredictionSet
from corpora.schemas.sequences import SequenceBatch
from corpora.storage.manifest_file import read_manifest
from corpora.tokenizers.load import load_tokenizer_of
from objectives.api.mask_set import MaskSet
from objectives.api.masks import MaskBatch
from objectives.api.protocol import CorpusFacts, Objective, draw_key, mask_key
from objectives.api.special_tokens import SpecialTokens
from pipelines.inspect.figure import recording_console, save_figure
from pipelines.inspect.options import Choice, Show
from pipelines.inspect.pair_text import print_pair, print_prediction
from pipelines.inspect.row_text import print_parts, print_rendered, print_spans
from pipelines.inspect.task_text import chosen_task, print_task
from pipelines.masks.job import equipped_objective
from pipelines.pieces.titles import find_titles

_RECIPE = "recipe.json"  # file of a run; written by trainer.recipe, whose import brings torch


@dataclass(frozen=True)
class Masked:
    """The masks of one row, with their objective."""

    objective: Objective
    special: SpecialTokens
    masks: MaskBatch


def command(options: Show) -> None:
    """Run ``farspan show``.

    Raises:
        FarspanError: as ``show``.
    """
    if _shows_update(options):
        return
    show(
        options.artefact,
        options.row or 0,
        options.corpus,
        options.width,
        options.choice,
        figure=options.figure,
        documents_folder=options.documents,
    )
    if options.figure:
        result(f"figure: {options.figure}", figure=options.figure)


def _shows_update(options: Show) -> bool:
    """Print the update of a run if the options name one, and return True; return False for an artefact.

    Raises:
        FarspanError: a run without a step, or a step of a folder that is no run.
    """
    if not names_update(options.artefact, options.step, options.rank):
        return False
    assert options.step is not None
    from pipelines.runs.update import show_update  # brings torch, which no artefact needs

    console = recording_console(options.figure) if options.figure else None
    show_update(options.artefact, options.step, options.rank, options.row, options.width, console)
    if console and options.figure:
        save_figure(console, options.figure)
        result(f"figure: {options.figure}", figure=options.figure)
    return True


def is_run(folder: str) -> bool:
    """Return True for the folder of a run of ``farspan train``."""
    return (Path(folder) / _RECIPE).is_file()


def names_update(folder: str, step: int | None, rank: int | None) -> bool:
    """True if the folder is a run and the step one of its updates; False for an artefact without a step.

    Raises:
        FarspanError: a run without a step, or a step or rank of a folder that is no run.
    """
    run = is_run(folder)
    if step is None and not run:
        if rank is not None:
            raise FarspanError(f"--rank {rank}: {folder} is no run; leave the flag out")
        return False
    if step is None:
        raise FarspanError(f"{folder}: is a run; name the update to show: --step N")
    if not run:
        raise FarspanError(f"--step {step}: {folder} is no run of `farspan train`; give one")
    return True


def show(
    folder: str,
    row: int,
    corpus_folder: str | None = None,
    width: int = 0,
    choice: Choice = Choice(),  # noqa: B008 (frozen)
    console: Console | None = None,
    figure: str | None = None,
    documents_folder: str | None = None,
) -> None:
    """Print a row of a corpus; of a mask set, or under an objective, also what is hidden and what the model sees.

    Of pairs: query, options, targets, references, and the beginning of each document; with a task, what the model sees.
    Of predictions: the text and its pair.

    Args:
        row: number of the row in the artefact.
        corpus_folder: folder of a mask set's corpus, if it has moved since the masks were made.
        width: maximum characters of each text; 0 for all.
        figure: SVG file to draw the row into, instead of printing it.
        documents_folder: folder of the documents of pairs, or of a corpus with titles, if it has moved since.

    Raises:
        FarspanError: no such row, masks of another corpus, or a choice that does not fit.
    """
    if width < 0:
        raise FarspanError(f"--width {width}: give how many characters to show of each text, 0 for all")
    if figure:
        console = recording_console(figure)
    console = console or Console(highlight=False, soft_wrap=True)
    format = read_manifest(folder).format
    with console:  # a notebook shows one output, not one for each line
        if format == "farspan.pairs":
            _show_pair(console, PairSet(folder, documents_folder), row, width, choice)
        elif format == "farspan.predictions":
            print_prediction(console, PredictionSet(folder), row, width, documents_folder)
        else:
            _show_sequence(console, folder, corpus_folder, row, width, choice, documents_folder)
    if figure:
        save_figure(console, figure)


def _show_sequence(
    console: Console,
    folder: str,
    corpus_folder: str | None,
    row: int,
    width: int,
    choice: Choice,
    documents_folder: str | None,
) -> None:
    """Print a row of a corpus or mask set."""
    if choice.task:
        raise FarspanError(f"--task {choice.task}: {folder} holds no pairs; leave the flag out")
    stored = _stored(folder, choice, corpus_folder)
    corpus = Corpus(corpus_folder or (stored.parent_folder if stored else folder))
    if stored is not None:
        stored.check_parent(corpus)
    if not len(corpus):
        raise FarspanError(f"{corpus.folder}: holds no sequence; there is nothing to show")
    if not 0 <= row < len(corpus):
        raise FarspanError(f"--row {row}: {corpus.folder} has {row_numbers(len(corpus))}")
    rows = np.array([row])
    batch = corpus.take(rows)
    tokenizer = load_tokenizer_of(corpus.folder)
    masked = None
    if stored is not None:
        masked = Masked(stored.objective, stored.special_tokens, stored.masks(batch, rows, choice.draw))
    elif choice.objective:
        masked = _draw(corpus, batch, choice)
    place = f" of {printable(folder)}, sequence {batch.sequence_id(0).hex()}"
    console.print(Text.assemble((f"row {row}", "bold"), place))
    titles = find_titles(corpus, documents_folder)
    print_parts(console, batch, None if masked else tokenizer, width, titles)
    if masked:
        print_spans(console, batch, masked.masks, tokenizer, width)
        examples = masked.objective.render(batch, masked.masks, masked.special)
        print_rendered(console, examples, tokenizer, masked.special.ids, width)


def _show_pair(console: Console, pairs: PairSet, row: int, width: int, choice: Choice) -> None:
    if flags := _given(choice, "objective", "scorer", "seed", "draw"):
        raise FarspanError(f"{flags}: {pairs.folder} holds pairs, in which nothing is hidden; leave the flags out")
    if not choice.task and (flags := _given(choice, "preset", "options")):
        raise FarspanError(f"{flags}: {pairs.folder} holds pairs; name the task that renders them: --task NAME")
    chosen = chosen_task(pairs, choice) if choice.task else None
    print_pair(console, pairs, row, width)
    if chosen:
        print_task(console, pairs, row, width, chosen)


def _stored(folder: str, choice: Choice, corpus_folder: str | None) -> MaskSet | None:
    """Open the mask set in ``folder``, or return None for a corpus; refuse flags that do not apply."""
    if read_manifest(folder).format == "farspan.masks":
        if choice.objective:
            raise FarspanError(f"--objective {choice.objective}: {folder} holds masks; show the corpus instead")
        if flags := _given(choice, "preset", "scorer", "seed"):
            raise FarspanError(f"{flags}: {folder} holds masks, which are drawn already; show the corpus instead")
        stored = MaskSet(folder, choice.options)
        if not 0 <= choice.draw < stored.draws:
            raise FarspanError(f"--draw {choice.draw}: {folder} has draws 0 to {stored.draws - 1}")
        return stored
    if corpus_folder:
        raise FarspanError(f"--corpus {corpus_folder}: {folder} holds no masks; leave the flag out")
    if not choice.objective and (flags := _given(choice, "preset", "options", "scorer", "seed", "draw")):
        raise FarspanError(f"{flags}: {folder} holds no masks; name the objective: --objective NAME")
    return None


def _given(choice: Choice, *names: str) -> str:
    """List the flags among ``names`` that were given."""
    flags = ["--set" if name == "options" else f"--{name}" for name in names if getattr(choice, name)]
    return ", ".join(flags)


def _draw(corpus: Corpus, batch: SequenceBatch, choice: Choice) -> Masked:
    """Draw the masks that ``farspan mask`` would store for these rows."""
    assert choice.objective
    objective = equipped_objective(corpus.folder, choice.objective, choice.preset, choice.options, choice.scorer)
    special = objective.validate(CorpusFacts.of(corpus.manifest))
    if choice.draw < 0:
        raise FarspanError(f"--draw {choice.draw}: give 0 for the first, or more")
    return Masked(objective, special, objective.mask(batch, draw_key(mask_key(choice.seed, objective), choice.draw)))
