"""Links of rows, and titles of documents, read from the artefacts that a corpus was made from."""

import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from corpora.errors import FarspanError
from corpora.linking.near_duplicates import NEAR_DUPLICATES
from corpora.schemas.corpus import Corpus
from corpora.storage.manifest_file import ORIGINS_NAME, list_files
from corpora.storage.shards import write_shard
from pipelines import functions
from pipelines.pages import lookups as module
from pipelines.pages.corpus_rows import CorpusRows
from pipelines.pages.lookups import Links, find_titles
from pipelines.pages.page import PageOptions, Part
from pipelines.pages.piece import shorten, title_and_id
from pipelines.pages.row import cluster_of, parts_of
from tests.artefacts import all_rows, make_documents
from tests.neighbours import make_neighbours


@pytest.fixture(scope="module")
def linked(tmp_path_factory):
    """A linked corpus, and its neighbours."""
    root = tmp_path_factory.mktemp("linked")
    documents = make_documents(str(root / "documents"), shards=1, documents=60)
    neighbours, corpus = make_neighbours(str(root / "neighbours"), documents), str(root / "corpus")
    options = {"sequence_length": 256, "policy": "nearest", "shards": 1, "workers": 1, "quiet": True}
    functions.corpus_linked(documents=documents, neighbours=neighbours, output=corpus, **options)
    return corpus, neighbours


def listed_similarities(neighbours: str) -> dict[tuple[str, str], float]:
    """(document, neighbour) -> similarity, read in the plainest way."""
    rows = all_rows(neighbours, "farspan.neighbours")
    found, first = {}, 0
    for number, row in enumerate(rows):
        if number and row["cluster_id"] >> 20 != rows[number - 1]["cluster_id"] >> 20:
            first = number
        for other, similarity in zip(row["neighbours"], row["similarities"], strict=True):
            found[row["document_id"], rows[first + other]["document_id"]] = float(similarity)
    return found


def test_similarities_are_those_of_the_neighbours(linked):
    folder, neighbours = linked
    corpus, known = Corpus(folder), listed_similarities(neighbours)
    links, compared = Links(folder, corpus.manifest), 0
    assert links.missing == ""
    for row in range(len(corpus)):
        batch = corpus.take(np.array([row]))
        parts, cluster = parts_of(batch), cluster_of(batch)
        found = links.of(parts, cluster)
        assert len(found) == len(parts)
        for before, part, link in zip(parts, parts[1:], found[1:], strict=False):
            pair = before.document_id, part.document_id
            expected = known.get(pair, known.get(pair[::-1])) if cluster is not None else None
            assert link.similarity == expected
            assert link.cosine == expected  # norms are 1
            compared += expected is not None
    assert compared > 0


def test_near_duplicates_are_those_of_the_lists(linked, tmp_path):
    """Each pair is said of both; a row of no cluster looks into every list."""
    folder = str(tmp_path / "corpus")
    shutil.copytree(linked[0], folder)
    corpus = Corpus(folder)
    batch = corpus.take(np.array([0]))
    parts, cluster = parts_of(batch), cluster_of(batch)
    one, other = parts[0].document_id, parts[1].document_id
    lists: dict[int, list[Any]] = {cluster >> 20: [(one, "made:far", 0.5)], 7: [("made:other", other, None)]}
    for shard, pairs in lists.items():
        columns = [*zip(*pairs, strict=True), [0.9] * len(pairs)]
        with write_shard(f"{folder}/near-duplicates/link-{shard:05d}.arrow", NEAR_DUPLICATES, 1024) as (writer, _):
            writer.write(pa.record_batch([list(column) for column in columns], schema=NEAR_DUPLICATES))
    manifest = replace(corpus.manifest, files=list_files(folder))
    links = Links(folder, manifest, linked[1])
    said = (("made:far", 0.5),), (("made:other", None),)
    assert [link.near_duplicates for link in links.of(parts, cluster)][:2] == [said[0], ()]
    assert [link.near_duplicates for link in links.of(parts, None)][:2] == [*said]


def test_without_neighbours_the_page_says_so(linked, tmp_path):
    folder, neighbours = linked
    alone = str(tmp_path / "alone")
    shutil.copytree(folder, alone, ignore=shutil.ignore_patterns(ORIGINS_NAME))
    corpus = Corpus(alone)
    links = Links(alone, corpus.manifest)
    assert "give it: --neighbours DIR" in links.missing
    assert CorpusRows("alone", corpus, links=links).page(0, PageOptions()).missing == (links.missing,)
    assert Links(alone, corpus.manifest, neighbours).missing == ""
    with pytest.raises(FarspanError, match=r"manifest\.json|is 'farspan\.corpus' where"):
        Links(alone, corpus.manifest, folder)


TITLES = ("One", None, "\x1b[31mThree\u202e", "x" * 1_000)


@pytest.fixture(scope="module")
def titled_folders(tmp_path_factory) -> Path:
    """Documents, with titles and without, and a corpus of each."""
    root = tmp_path_factory.mktemp("titles")
    for name, titles in (("titled", TITLES), ("plain", ())):
        make_documents(str(root / name), shards=2, documents=20, titles=titles)
        folders = {"documents": str(root / name), "output": str(root / f"{name}-c")}
        functions.corpus_random(**folders, sequence_length=128, workers=1, quiet=True)
    return root


def test_titles_are_found_by_id(titled_folders: Path):
    rows = all_rows(titled_folders / "titled")
    found = find_titles(Corpus(str(titled_folders / "titled-c")))
    ids = [row["document_id"] for row in rows]
    assert found.of(ids) == {row["document_id"]: row["title"] for row in rows if row["title"]}
    assert found.of([ids[4], ids[1], "made:9:9"]) == {ids[4]: "One"}
    assert found.of([]) == {}
    parts = found.with_titles([Part(ids[1], 0, 5, 0, 5), Part(ids[24], 5, 9, 3, 9)])
    assert [(part.document_id, part.title, part.start) for part in parts] == [(ids[1], None, 0), (ids[24], "One", 5)]
    assert not found.missing


def test_the_rows_of_a_corpus_do_not_depend_on_titles(titled_folders: Path):
    titled, plain = (all_rows(titled_folders / name, "farspan.corpus") for name in ("titled-c", "plain-c"))
    assert titled == plain
    assert len(titled) > 3


def test_documents_without_titles_or_out_of_reach_have_none(titled_folders: Path, tmp_path: Path):
    assert find_titles(Corpus(str(titled_folders / "plain-c"))) is None
    alone = tmp_path / "alone"
    shutil.copytree(titled_folders / "titled-c", alone)
    assert find_titles(Corpus(str(alone))) is None
    assert find_titles(Corpus(str(alone)), str(titled_folders / "titled")).of(["made:0:0"]) == {"made:0:0": "One"}
    (alone / ORIGINS_NAME).unlink()
    assert find_titles(Corpus(str(alone))) is None
    (alone / ORIGINS_NAME).write_text('{"parent": "s3://farspan-no-such-bucket/documents"}')
    assert find_titles(Corpus(str(alone))) is None


def test_other_documents_are_refused_if_they_were_named(titled_folders: Path, tmp_path: Path):
    corpus = Corpus(str(titled_folders / "titled-c"))
    with pytest.raises(FarspanError, match=r"plain/manifest\.json: not the documents that .* was made from"):
        find_titles(corpus, str(titled_folders / "plain"))
    with pytest.raises(FarspanError, match="none"):
        find_titles(corpus, str(tmp_path / "none"))


def test_what_cannot_be_read_is_said_once_and_does_not_hide_the_row(titled_folders: Path, tmp_path: Path, monkeypatch):
    root = tmp_path / "moved"
    shutil.copytree(titled_folders, root)
    corpus = Corpus(str(root / "titled-c"))
    shard = next((root / "titled" / "shards").iterdir())
    os.truncate(shard, 100)
    damaged = find_titles(corpus)
    part = Part("made:0:0", 0, 5, 0, 5)
    assert damaged.with_titles([part]) == [part]
    assert damaged.missing.startswith(f"titles are not shown: {shard}: not a readable shard")
    monkeypatch.setattr(module, "_SEARCHED", 39)
    large = find_titles(Corpus(str(titled_folders / "titled-c")))
    assert large.of(["made:0:0"]) == {}
    assert large.missing.endswith("has 40 documents, more than 39")


def test_a_title_in_a_line():
    assert title_and_id("made:0:0", None) == title_and_id("made:0:0", "") == "made:0:0"
    assert title_and_id("made:0\x07", TITLES[2]) == "\\x1b[31mThree\\u202e (made:0\\x07)"
    assert (shorten(None), shorten("One"), shorten(TITLES[3])) == ("", "One", "x" * 300 + " …")
