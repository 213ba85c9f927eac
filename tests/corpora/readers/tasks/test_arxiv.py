"""arXiv and PubMed: articles as lists of sentences."""

from __future__ import annotations

import json
import zipfile

import pytest

from corpora.readers import ReadOptions
from tests.corpora.readers.tasks import read_documents, read_pairs, rejected_pairs, write_lines

ARTICLE = {
    "article_id": "1234.5678",
    "article_text": ["we study tides .", "they rise ."],
    "abstract_text": ["<S> tides are studied . </S>", "<S>  they rise . </S>"],
    "labels": None,
    "section_names": ["introduction", "empty", "results"],
    "sections": [["we study tides ."], [""], ["they rise .", "and fall ."]],
}
EMPTY = {**ARTICLE, "article_id": "empty", "article_text": []}


@pytest.mark.parametrize("format", ["arxiv", "pubmed"])
def test_an_article_is_a_document_and_its_abstract_the_target(tmp_path, format):
    path = write_lines(tmp_path / "val.txt", [ARTICLE])
    options = ReadOptions(format=format)
    assert read_documents(path, options) == {"1234.5678": "we study tides .\nthey rise ."}
    (pair,) = read_pairs(path, options)
    assert pair.targets == ("tides are studied .\nthey rise .",)
    assert (pair.pair_id, pair.documents, pair.split, pair.query) == ("1234.5678", ("1234.5678",), "validation", "")


def test_sections_are_documents_of_one_pair(tmp_path):
    path = write_lines(tmp_path / "train.txt", [ARTICLE, EMPTY])
    options = ReadOptions(format="arxiv", text_field="sections")
    texts = read_documents(path, options)
    assert texts["1234.5678#2"] == "results\nthey rise .\nand fall ."
    assert next(pair.documents for pair in read_pairs(path, options)) == ("1234.5678#0", "1234.5678#2")


def test_the_archive_as_published_is_read_and_bad_articles_are_rejected(tmp_path):
    path = tmp_path / "arxiv-dataset.zip"
    bad = [EMPTY, {**ARTICLE, "abstract_text": "no list"}, {"article_id": "x"}]
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("arxiv-dataset/train.txt", json.dumps(ARTICLE) + "\n")
        archive.writestr("arxiv-dataset/test.txt", "".join(json.dumps(row) + "\n" for row in bad))
        archive.writestr("arxiv-dataset/vocab", "the 1\n")
    options = ReadOptions(format="arxiv")
    assert [reason for _, reason in rejected_pairs(path, options)] == ["empty_document", "not_a_string", "not_a_string"]
