"""Multi-News: clusters and summaries in two files of lines, or in one of JSON lines."""

from __future__ import annotations

import gzip

import pytest

from corpora.errors import FarspanError
from corpora.readers import ReadOptions
from corpora.readers.selection import holds_records
from tests.corpora.readers import read_all
from tests.corpora.readers.tasks import read_pairs, rejected_pairs, write_lines

NEWS = ReadOptions(format="multi-news")
CLUSTERS = ["One. NEWLINE_CHAR More.|||||Two.|||||", "", "Three. ||||| |||||Four.", "Five."]
SUMMARIES = ["– All of it. NEWLINE_CHAR Yes.", "nothing", "– Some.", "– Five."]


@pytest.fixture
def source(tmp_path):
    (tmp_path / "train.tgt").write_text("".join(f"{line}\n" for line in SUMMARIES))
    path = tmp_path / "train.src"
    path.write_text("".join(f"{line}\n" for line in CLUSTERS))
    return path


@pytest.mark.parametrize("cut", [1 << 30, 40, 13])
def test_summaries_are_the_lines_of_equal_number_in_any_ranges(source, cut):
    pairs = read_pairs(source, NEWS, cut)
    assert [pair.targets for pair in pairs] == [("– All of it.\nYes.",), ("– Some.",), ("– Five.",)]
    assert {pair.split for pair in pairs} == {"train"}
    assert len({pair.pair_id for pair in pairs}) == 3


def test_documents_are_those_of_the_format_for_documents(source):
    documents = read_all(source, NEWS)
    texts = dict(zip(documents.keys, documents.texts, strict=True))
    named = [[texts[key] for key in pair.documents] for pair in read_pairs(source, NEWS)]
    assert named == [["One.\nMore.", "Two."], ["Three.", "Four."], ["Five."]]


def test_other_names_and_compression(source, tmp_path):
    pairs = read_pairs(source, NEWS)
    for src, tgt in (("train.src.cleaned", "train.tgt"), ("train.txt.src", "train.txt.tgt")):
        (tmp_path / src).write_bytes(source.read_bytes())
        (tmp_path / tgt).write_bytes((tmp_path / "train.tgt").read_bytes())
        assert read_pairs(tmp_path / src, NEWS) == pairs
    for name in ("train.src", "train.tgt"):
        (tmp_path / f"{name}.gz").write_bytes(gzip.compress((tmp_path / name).read_bytes()))
    assert read_pairs(tmp_path / "train.src.gz", NEWS) == pairs
    names = ("train.src", "train.src.cleaned", "train.txt.src", "train.jsonl", "train.tgt", "train.txt.tgt")
    pairs_of = ReadOptions(format="pairs:multi-news")
    assert [name for name in names if holds_records(name, pairs_of)] == list(names[:4])


def test_json_lines(tmp_path):
    rows = [{"document": c, "summary": s} for c, s in zip(CLUSTERS, SUMMARIES, strict=True) if c]
    path = write_lines(tmp_path / "validation.jsonl", rows)
    pairs = read_pairs(path, NEWS)
    assert [pair.targets[0] for pair in pairs] == ["– All of it.\nYes.", "– Some.", "– Five."]
    texts = dict(
        zip(*(getattr(read_all(path, ReadOptions(format="multi-news")), n) for n in ("keys", "texts")), strict=True)
    )
    assert [texts[key] for key in pairs[1].documents] == ["Three.", "Four."]
    write_lines(
        path, [{"document": "A"}, {"document": "||||| |||||", "summary": "a"}, {"document": "A", "summary": " "}]
    )
    assert [reason for _, reason in rejected_pairs(path, NEWS)] == ["missing_text", "empty_cluster", "empty_text"]


def test_fewer_summaries_and_missing_files(source, tmp_path):
    (tmp_path / "train.tgt").write_text("– All.\n\n\n")
    assert rejected_pairs(source, NEWS) == [("39", "empty_text"), ("63", "missing_text")]
    (tmp_path / "train.tgt").unlink()
    with pytest.raises(FarspanError, match=r"train\.src: no summaries beside it; put train\.tgt there"):
        read_pairs(source, NEWS)
    with pytest.raises(FarspanError, match=r"train\.txt: not a file of Multi-News"):
        read_pairs(source.rename(tmp_path / "train.txt"), NEWS)
