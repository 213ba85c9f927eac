"""Artefacts as subjects of pages: each corpus with its mask sets, and predictions with their pairs."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import TypeVar

from corpora.errors import FarspanError
from corpora.printing import printable
from corpora.schemas.corpus import Corpus
from corpora.schemas.documents import DocumentSet
from corpora.schemas.pairs import PairSet
from corpora.schemas.predictions import PredictionSet
from corpora.storage.manifest_file import manifest_sha256, read_manifest
from corpora.storage.sharded_rows import ShardedRows
from objectives.api.mask_set import MaskSet
from pipelines.pages.corpus_rows import CorpusRows
from pipelines.pages.document_rows import DocumentRows
from pipelines.pages.links import Links
from pipelines.pages.maskers import Masker
from pipelines.pages.page import Subject
from pipelines.pages.pair_rows import PairRows, System, check_answers
from pipelines.pages.rendering import Rendering, load_rendering
from pipelines.pages.run import names_update
from pipelines.pages.titles import find_titles
from pipelines.view.options import View

Rows = TypeVar("Rows", bound=ShardedRows)

_VIEWED = ("farspan.corpus", "farspan.masks", "farspan.documents", "farspan.pairs", "farspan.predictions")


def open_subjects(options: View) -> list[Subject]:
    """Open the artefacts of ``farspan view``: updates of runs, corpora, documents, pairs, then predictions."""
    folders: dict[str, list[str]] = {format: [] for format in _VIEWED}
    runs = [folder for folder in options.artefact if names_update(folder, options.step, options.rank)]
    for folder in (*options.artefact, *options.masks):
        if folder in runs:
            continue
        format = read_manifest(folder).format
        if format not in folders:
            raise FarspanError(f"{folder}: is {format!r}; a page shows {', '.join(map(repr, _VIEWED))}")
        if folder in options.masks and format != "farspan.masks":
            raise FarspanError(f"--masks {folder}: is {format!r}, not a mask set; name it without --masks")
        folders[format].append(folder)
    _check_options(options, folders)
    names = _Names()
    subjects: list[Subject] = [*_updates(options, runs, names), *_corpora(options, folders, names)]
    subjects += [
        DocumentRows(names.new(folder), _read_ranges(DocumentSet(folder))) for folder in folders["farspan.documents"]
    ]
    for folder in folders["farspan.pairs"]:
        pairs = _read_ranges(PairSet(folder, options.documents))
        _read_ranges(pairs.documents)
        subjects.append(PairRows(names.new(folder), pairs, rendering=_load_rendering(options, pairs)))
    if folders["farspan.predictions"]:
        subjects.append(_predictions(options, folders["farspan.predictions"], names))
    for subject in subjects:
        if not len(subject):
            raise FarspanError(f"{subject.folder}: has no row; there is nothing to view")
        options.check_rows(subject.folder, len(subject))
    return subjects


def _updates(options: View, runs: Iterable[str], names: _Names) -> Iterator[Subject]:
    """Open the update ``options.step`` of each run."""
    for folder in runs:
        from pipelines.pages.update import UpdateRows  # brings torch, which no artefact needs

        assert options.step is not None
        yield UpdateRows(names.new(f"{folder.rstrip('/')}-step-{options.step}"), folder, options.step, options.rank)


def _check_options(options: View, folders: dict[str, list[str]]) -> None:
    sequences = folders["farspan.corpus"] + folders["farspan.masks"]
    pairs = folders["farspan.pairs"] + folders["farspan.predictions"]
    for flag, value, folders_of_kind, what in (
        ("--objective", options.objective, sequences, "corpus"),
        ("--corpus", options.corpus, folders["farspan.masks"], "mask set"),
        ("--neighbours", options.neighbours, sequences, "corpus"),
        ("--task", options.task, pairs, "pairs"),
        ("--documents", options.documents, sequences + pairs, "corpus and no pairs"),
    ):
        if value and not folders_of_kind:
            shown = value if isinstance(value, str) else value[0]
            raise FarspanError(f"{flag} {shown}: there is no {what} among the artefacts; leave the flag out")


def _corpora(options: View, folders: dict[str, list[str]], names: _Names) -> Iterator[CorpusRows]:
    """Open the corpora that were named, and those of mask sets whose corpus was not named."""
    corpora = {manifest_sha256(folder): _read_ranges(Corpus(folder)) for folder in folders["farspan.corpus"]}
    beside: dict[str, list[Masker]] = {name: [] for name in corpora}
    for folder in folders["farspan.masks"]:
        masks = _read_ranges(MaskSet(folder))
        made_from = (masks.manifest.parent or {}).get("manifest_sha256", "")
        if made_from not in corpora:
            corpus = _read_ranges(Corpus(options.corpus or masks.parent_folder))
            masks.check_parent(corpus)
            corpora[made_from], beside[made_from] = corpus, []
        masks.check_parent(corpora[made_from])
        beside[made_from].append(Masker.from_mask_set(_name(folder), masks))
    of_pairs = folders["farspan.pairs"] or folders["farspan.predictions"]
    documents = None if of_pairs else options.documents
    for key, corpus in corpora.items():
        beside[key] += [Masker.from_objective(corpus, name, seed=options.seed) for name in options.objective]
        links = None
        if corpus.manifest.config.get("neighbours"):
            links = Links(corpus.folder, corpus.manifest, options.neighbours)
        elif options.neighbours:
            raise FarspanError(f"--neighbours {options.neighbours}: {corpus.folder} was not linked; leave the flag out")
        yield CorpusRows(names.new(corpus.folder), corpus, beside[key], links, find_titles(corpus, documents))


def _predictions(options: View, folders: Iterable[str], names: _Names) -> PairRows:
    systems = [System(_name(folder), _read_ranges(PredictionSet(folder))) for folder in folders]
    check_answers(systems)
    pairs = _read_ranges(systems[0].predictions.open_pairs(documents=options.documents))
    _read_ranges(pairs.documents)
    return PairRows(names.new(systems[0].predictions.folder), pairs, systems, _load_rendering(options, pairs))


def _load_rendering(options: View, pairs: PairSet) -> Rendering | None:
    return load_rendering(pairs, options.task) if options.task else None


def _read_ranges(rows: Rows) -> Rows:
    """Return ``rows``, set to read single record batches from a remote store instead of whole shards."""
    rows.read_ranges()
    return rows


def _name(folder: str) -> str:
    return printable(os.path.basename(folder.rstrip("/")) or folder)


class _Names:
    """Names of artefacts in addresses: the folder's, with a number if another has the same."""

    def __init__(self) -> None:
        self._used: set[str] = set()

    def new(self, folder: str) -> str:
        plain = "".join(letter if letter.isalnum() or letter in "-_." else "-" for letter in _name(folder)) or "rows"
        name, number = plain, 2
        while name in self._used or name == "static":
            name, number = f"{plain}-{number}", number + 1
        self._used.add(name)
        return name
