"""Artefacts and updates opened as subjects of pages: each corpus with its masks, and predictions with their pairs.

Modules of one kind are imported when it is opened, because some of them take seconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from corpora.errors import FarspanError
from corpora.storage.manifest_file import manifest_sha256, read_manifest
from corpora.storage.sharded_rows import ShardedRows
from pipelines.pages.catalog import Names, base_name
from pipelines.pages.options import Selection
from pipelines.pages.page import Subject
from trainer.checkpoint.run_files import RECIPE

Rows = TypeVar("Rows", bound=ShardedRows)

_FORMATS = ("farspan.corpus", "farspan.masks", "farspan.documents", "farspan.pairs", "farspan.predictions")


def is_run(folder: str) -> bool:
    """Return True for the folder of a run of ``farspan train``."""
    return (Path(folder) / RECIPE).is_file()


def names_update(folder: str, step: int | None, rank: int | None) -> bool:
    """Return True if the folder is a run and the step one of its updates, False for an artefact without a step."""
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


def open_subjects(selection: Selection) -> list[Subject]:
    """Open updates of runs, corpora, documents, pairs, then predictions."""
    folders: dict[str, list[str]] = {format: [] for format in _FORMATS}
    runs = [folder for folder in selection.artefact if names_update(folder, selection.step, selection.rank)]
    for folder in (*selection.artefact, *selection.masks):
        if folder in runs:
            continue
        format = read_manifest(folder).format
        if format not in folders:
            raise FarspanError(f"{folder}: is {format!r}; a page shows {', '.join(map(repr, _FORMATS))}")
        if folder in selection.masks and format != "farspan.masks":
            raise FarspanError(f"--masks {folder}: is {format!r}, not a mask set; name it without --masks")
        folders[format].append(folder)
    _check_selection(selection, folders)
    names = Names()
    return [
        *_open_updates(selection, runs, names),
        *_open_corpora(selection, folders, names),
        *_open_documents(folders["farspan.documents"], names),
        *_open_pairs(selection, folders, names),
    ]


def _check_selection(selection: Selection, folders: Mapping[str, Sequence[str]]) -> None:
    sequences = [*folders["farspan.corpus"], *folders["farspan.masks"]]
    pairs = [*folders["farspan.pairs"], *folders["farspan.predictions"]]
    stream = selection.layout == "stream"
    for flag, value, folders_of_kind, what in (
        ("--objective", selection.objective, sequences, "corpus"),
        ("--corpus", selection.corpus, folders["farspan.masks"], "mask set"),
        ("--neighbours", selection.neighbours, sequences, "corpus"),
        ("--task", selection.task, pairs, "pairs"),
        ("--layout", selection.layout if stream else "", sequences, "corpus"),
        ("--documents", selection.documents, sequences + pairs, "corpus and no pairs"),
    ):
        if value and not folders_of_kind:
            shown = value if isinstance(value, str) else value[0]
            raise FarspanError(f"{flag} {shown}: there is no {what} among the artefacts; leave the flag out")


def _open_updates(selection: Selection, runs: Iterable[str], names: Names) -> Iterator[Subject]:
    """Open the update ``selection.step`` of each run."""
    for folder in runs:
        from pipelines.pages.update import UpdateRows  # brings torch, which no artefact needs

        step = selection.step
        assert step is not None
        yield UpdateRows(names.new(f"{folder.rstrip('/')}-step-{step}"), folder, step, selection.rank)


def _open_corpora(selection: Selection, folders: Mapping[str, Sequence[str]], names: Names) -> Iterator[Subject]:
    """Open the corpora that were named, and those of mask sets whose corpus was not named."""
    if not folders["farspan.corpus"] and not folders["farspan.masks"]:
        return
    from corpora.schemas.corpus import Corpus
    from objectives.api.mask_set import MaskSet
    from objectives.rendering.stream import StreamLayout
    from pipelines.pages.corpus_rows import CorpusRows, Masker
    from pipelines.pages.lookups import Links, find_titles

    corpora = {manifest_sha256(folder): _read_ranges(Corpus(folder)) for folder in folders["farspan.corpus"]}
    named, maskers = set(corpora), {digest: list[Masker]() for digest in corpora}
    for folder in folders["farspan.masks"]:
        masks = _read_ranges(MaskSet(folder, selection.options))
        parent = (masks.manifest.parent or {}).get("manifest_sha256", "")
        if parent not in corpora:
            corpora[parent], maskers[parent] = _read_ranges(Corpus(selection.corpus or masks.parent_folder)), []
        masks.check_parent(corpora[parent])
        maskers[parent].append(Masker.from_mask_set(base_name(folder), masks))
    of_pairs = folders["farspan.pairs"] or folders["farspan.predictions"]
    documents = None if of_pairs else selection.documents
    layout = StreamLayout() if selection.layout == "stream" else None
    choice = (selection.preset, selection.options, selection.scorer, selection.seed)
    for digest, corpus in corpora.items():
        alone = digest not in named and len(maskers[digest]) == 1
        name = names.new(maskers[digest][0].name if alone else corpus.folder)
        maskers[digest] += [Masker.from_objective(corpus, name, *choice) for name in selection.objective]
        links = None
        if selection.links and corpus.manifest.config.get("neighbours"):
            links = Links(corpus.folder, corpus.manifest, selection.neighbours)
        elif selection.neighbours:
            raise FarspanError(
                f"--neighbours {selection.neighbours}: {corpus.folder} was not linked; leave the flag out"
            )
        titles = find_titles(corpus, documents)
        yield CorpusRows(name, corpus, maskers[digest], links, titles, layout)


def _open_documents(folders: Iterable[str], names: Names) -> Iterator[Subject]:
    for folder in folders:
        from corpora.schemas.documents import DocumentSet
        from pipelines.pages.document_rows import DocumentRows

        yield DocumentRows(names.new(folder), _read_ranges(DocumentSet(folder)))


def _open_pairs(selection: Selection, folders: Mapping[str, Sequence[str]], names: Names) -> Iterator[Subject]:
    """Open pairs, and predictions beside each other with the pairs that they answer."""
    pairs, answers = folders["farspan.pairs"], folders["farspan.predictions"]
    if not pairs and not answers:
        return
    from corpora.schemas.pairs import PairSet
    from corpora.schemas.predictions import PredictionSet
    from pipelines.pages.pair_rows import PairRows, System, check_answers, load_rendering

    systems = [System(base_name(folder), _read_ranges(PredictionSet(folder))) for folder in answers]
    opened: list[tuple[str, PairSet, list[System]]] = [
        (folder, PairSet(folder, selection.documents), []) for folder in pairs
    ]
    if systems:
        check_answers(systems)
        opened.append((answers[0], systems[0].predictions.open_pairs(documents=selection.documents), systems))
    for folder, questions, of_pairs in opened:
        _read_ranges(_read_ranges(questions).documents)
        rendering = load_rendering(questions, selection.task, selection.preset, selection.options)
        yield PairRows(names.new(folder), questions, of_pairs, rendering)


def _read_ranges(rows: Rows) -> Rows:
    """Return ``rows``, set to read single record batches from a remote store instead of whole shards."""
    rows.read_ranges()
    return rows
