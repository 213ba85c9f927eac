"""Artefacts opened together."""

from __future__ import annotations

import shutil

import pytest

from corpora.errors import FarspanError
from corpora.storage import sharded_rows
from corpora.storage.origins import NAME
from pipelines import functions
from pipelines.pages.page import PageOptions
from pipelines.view.command import open_artefacts
from pipelines.view.options import View
from tests.artefacts import make_corpus, make_documents, make_pairs
from tests.object_store import upload


def opened(made, *names, **options):
    folders = {key: tuple(made[name] for name in options.pop(key)) for key in ("masks",) if key in options}
    return open_artefacts(View(artefact=tuple(made[name] for name in names), **folders, **options))


def test_masks_are_laid_beside_their_corpus(made):
    for subjects in (
        opened(made, "corpus", "spans", "sentences"),
        opened(made, "corpus", masks=("spans", "sentences")),
        opened(made, "spans", "sentences"),
    ):
        (subject,) = subjects
        assert (subject.name, subject.kind, list(subject.mask_sets)) == ("corpus", "corpus", ["spans", "sentences"])
    (subject,) = opened(made, "corpus", objective=("t5",))
    assert list(subject.mask_sets) == ["t5"]


def test_every_kind_is_opened(made):
    subjects = opened(made, "documents", "pairs", "first", "second", "corpus")
    assert [(subject.name, subject.kind) for subject in subjects] == [
        ("corpus", "corpus"),
        ("documents", "documents"),
        ("pairs", "pairs"),
        ("first", "predictions"),
    ]


def test_equal_names_are_told_apart(made, tmp_path):
    other = make_corpus(str(tmp_path / "corpus"), seed=1)
    subjects = open_artefacts(View(artefact=(made["corpus"], other)))
    assert [subject.name for subject in subjects] == ["corpus", "corpus-2"]


@pytest.mark.parametrize(
    ("names", "options", "message"),
    [
        (["corpus"], {"masks": ["documents"]}, r"--masks .*documents: is 'farspan\.documents', not a mask set"),
        (["documents"], {"objective": ("t5",)}, "--objective t5: there is no corpus among the artefacts"),
        (["corpus"], {"task": "bart_ls"}, "--task bart_ls: there is no pairs among the artefacts"),
        (["corpus"], {"corpus": "x"}, "--corpus x: there is no mask set among the artefacts"),
        (["corpus"], {"neighbours": "x"}, "--neighbours x: .* was not linked"),
        (["corpus"], {"row": 10_000}, "--row 10000: .* has rows 0 to"),
    ],
)
def test_what_does_not_fit_is_refused(made, names, options, message):
    with pytest.raises(FarspanError, match=message):
        opened(made, *names, **options)


def test_masks_of_another_corpus_are_refused(made, tmp_path):
    alone = str(tmp_path / "alone")
    shutil.copytree(made["spans"], alone, ignore=shutil.ignore_patterns(NAME))
    assert open_artefacts(View(artefact=(alone,), corpus=made["corpus"]))[0].mask_sets == ("alone",)
    other = make_corpus(str(tmp_path / "corpus"), seed=1)
    with pytest.raises(FarspanError, match="its masks are not those of the corpus"):
        open_artefacts(View(artefact=(alone,), corpus=other))


def test_rows_on_s3_are_those_of_the_local_artefacts(made, store, monkeypatch):
    """Pages read record batches in place: no shard is fetched whole."""
    bucket = store.make_bucket("viewed")
    for name in ("corpus", "spans", "documents", "pairs"):
        upload(made[name], f"{bucket}/{name}")
    remote = {name: f"{bucket}/{name}" for name in ("corpus", "spans", "documents", "pairs")}
    local = opened(made, "corpus", "documents", "pairs", masks=("spans",))
    expected = {(here.name, row): repr(here.page(row, PageOptions())) for here in local for row in (0, len(here) - 1)}
    monkeypatch.setattr(sharded_rows, "map_shard", None)
    artefacts = (remote["corpus"], remote["documents"], remote["pairs"])
    far = open_artefacts(View(artefact=artefacts, masks=(remote["spans"],), documents=remote["documents"]))
    assert [subject.name for subject in far] == [subject.name for subject in local] == ["corpus", "documents", "pairs"]
    for here, there in zip(local, far, strict=True):
        assert len(here) == len(there)
        for row in (0, len(here) - 1):
            assert repr(there.page(row, PageOptions())) == expected[here.name, row]


def test_titles_reach_the_documents_corpora_and_pairs(tmp_path):
    titles = ("<script>One", None, "Three")
    documents = make_documents(str(tmp_path / "documents"), shards=1, documents=20, titles=titles)
    corpus = str(tmp_path / "corpus")
    functions.corpus_random(documents=documents, sequence_length=128, output=corpus, workers=1, quiet=True)
    pairs = make_pairs(str(tmp_path / "pairs"), documents, pairs=3)
    of_corpus, of_documents, of_pairs = open_artefacts(View(artefact=(corpus, documents, pairs), objective=("t5",)))
    for row in range(3):
        for subject in (of_documents, of_pairs):
            block = subject.page(row, PageOptions()).bands[-1][-1].blocks[0]
            assert (block.heading, block.title) == (f"made:0:{row}", titles[row] or "")
            assert subject.block(row, block.address, 1, 2, PageOptions()).title == block.title
    page = of_corpus.page(0, PageOptions())
    shown = {block.heading: block.title for block in page.bands[0][0].blocks}
    assert shown == {name: titles[int(name.rpartition(":")[2]) % 3] or "" for name in shown}
    assert {part.title for part in page.parts} == set(titles)
    moved = shutil.move(documents, str(tmp_path / "moved"))
    (unknown,) = open_artefacts(View(artefact=(corpus,)))
    assert {block.title for block in unknown.page(0, PageOptions()).bands[0][0].blocks} == {""}
    (known,) = open_artefacts(View(artefact=(corpus,), documents=moved))
    assert {part.title for part in known.page(0, PageOptions()).parts} == set(titles)
