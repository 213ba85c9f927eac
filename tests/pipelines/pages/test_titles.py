"""Titles of the documents of a corpus, from the documents that it was made from."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from corpora.errors import FarspanError
from corpora.schemas.corpus import Corpus
from corpora.storage.origins import NAME
from pipelines import functions
from pipelines.pages import titles as module
from pipelines.pages.row import Part
from pipelines.pages.titles import find_titles, shorten, title_and_id
from tests.artefacts import all_rows, make_documents

TITLES = ("One", None, "\x1b[31mThree\u202e", "x" * 1_000)


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    """Documents, with titles and without, and a corpus of each."""
    root = tmp_path_factory.mktemp("titles")
    for name, titles in (("titled", TITLES), ("plain", ())):
        make_documents(str(root / name), shards=2, documents=20, titles=titles)
        functions.corpus_random(
            documents=str(root / name), sequence_length=128, output=str(root / f"{name}-c"), workers=1, quiet=True
        )
    return root


def test_titles_are_found_by_id(made: Path):
    rows = all_rows(made / "titled")
    found = find_titles(Corpus(str(made / "titled-c")))
    ids = [row["document_id"] for row in rows]
    assert found.of(ids) == {row["document_id"]: row["title"] for row in rows if row["title"]}
    assert found.of([ids[4], ids[1], "made:9:9"]) == {ids[4]: "One"}
    assert found.of([]) == {}
    parts = found.with_titles([Part(ids[1], 0, 5, 0, 5), Part(ids[24], 5, 9, 3, 9)])
    assert [(part.document_id, part.title, part.start) for part in parts] == [(ids[1], None, 0), (ids[24], "One", 5)]
    assert not found.missing


def test_the_rows_of_a_corpus_do_not_depend_on_titles(made: Path):
    titled, plain = (all_rows(made / name, "farspan.corpus") for name in ("titled-c", "plain-c"))
    assert titled == plain
    assert len(titled) > 3


def test_documents_without_titles_or_out_of_reach_have_none(made: Path, tmp_path: Path):
    assert find_titles(Corpus(str(made / "plain-c"))) is None
    alone = tmp_path / "alone"
    shutil.copytree(made / "titled-c", alone)
    assert find_titles(Corpus(str(alone))) is None
    assert find_titles(Corpus(str(alone)), str(made / "titled")).of(["made:0:0"]) == {"made:0:0": "One"}
    (alone / NAME).unlink()
    assert find_titles(Corpus(str(alone))) is None
    (alone / NAME).write_text('{"parent": "s3://farspan-no-such-bucket/documents"}')
    assert find_titles(Corpus(str(alone))) is None


def test_other_documents_are_refused_if_they_were_named(made: Path, tmp_path: Path):
    corpus = Corpus(str(made / "titled-c"))
    with pytest.raises(FarspanError, match=r"plain/manifest\.json: not the documents that .* was made from"):
        find_titles(corpus, str(made / "plain"))
    with pytest.raises(FarspanError, match="none"):
        find_titles(corpus, str(tmp_path / "none"))


def test_what_cannot_be_read_is_said_once_and_does_not_hide_the_row(made: Path, tmp_path: Path, monkeypatch):
    root = tmp_path / "moved"
    shutil.copytree(made, root)
    corpus = Corpus(str(root / "titled-c"))
    shard = next((root / "titled" / "shards").iterdir())
    os.truncate(shard, 100)
    damaged = find_titles(corpus)
    part = Part("made:0:0", 0, 5, 0, 5)
    assert damaged.with_titles([part]) == [part]
    assert damaged.missing.startswith(f"titles are not shown: {shard}: not a readable shard")
    monkeypatch.setattr(module, "_SEARCHED", 39)
    large = find_titles(Corpus(str(made / "titled-c")))
    assert large.of(["made:0:0"]) == {}
    assert large.missing.endswith("has 40 documents, more than 39")


def test_a_title_in_a_line():
    assert title_and_id("made:0:0", None) == title_and_id("made:0:0", "") == "made:0:0"
    assert title_and_id("made:0\x07", TITLES[2]) == "\\x1b[31mThree\\u202e (made:0\\x07)"
    assert (shorten(None), shorten("One"), shorten(TITLES[3])) == ("", "One", "x" * 300 + " …")
