"""The numbers of `farspan stats`."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from corpora.errors import FarspanError
from corpora.schemas.pairs import open_pairs
from corpora.storage.manifest_file import read_manifest
from pipelines.engine.summary import padding_share
from pipelines.inspect.distributions import Distribution, distributions
from pipelines.inspect.stats import cuts, print_stats, statistics, stats
from tests.artefacts import all_rows, make_corpus, make_documents, make_pairs


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return make_corpus(str(tmp_path_factory.mktemp("stats") / "corpus"))


def test_statistics_hold_quantiles_and_totals(corpus, capsys):
    found = [Distribution("part length", np.arange(101), "tokens", "books"), Distribution("none", np.empty(0), "share")]
    numbers = statistics(corpus, found)
    manifest = read_manifest(corpus)
    assert numbers["part_length_of_books"] == {"p5": 5.0, "p50": 50.0, "p95": 95.0}
    assert numbers["none"] == {}
    assert numbers["padding_share"] == padding_share(manifest)
    assert numbers["documents_per_sequence"] == manifest.totals["parts"] / manifest.totals["sequences"]
    print_stats([numbers])
    said = capsys.readouterr().out
    assert "part length of books" in said
    assert "p5 5, p50 50, p95 95" in said


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ({"p5": 0.0, "p50": 2.5, "p95": 1234.5}, "p5 0, p50 2.50, p95 1,234"),
        ({"pairs": 3, "share_of_document_tokens": 0.25}, "pairs 3, share of document tokens 0.2500"),
        ({"read": 7, "rejected": 0}, "read 7"),
        ({"read": 0}, "0"),
        ({"pairs": 0, "share_of_document_tokens": 0.0}, "0"),
        (float("nan"), "nan"),
    ],
)
def test_numbers_are_printed_plainly(capsys, value, shown):
    print_stats([{"folder": "f", "format": "farspan.pairs", "value": value, "counts": {}}])
    assert f" {shown} " in capsys.readouterr().out


def test_stats_of_a_folder_are_those_of_its_distributions(corpus):
    assert stats(Path(corpus), sample=8) == statistics(corpus, list(distributions(corpus, 8, None)))


def test_json_stays_json_beside_a_figure(corpus, tmp_path, run):
    status, out, errors = run("stats", corpus, "--json", "--figure", tmp_path / "a.svg")
    assert (status, json.loads(out)[0]["folder"]) == (0, corpus)
    assert f"figure: {tmp_path / 'a.svg'}" in errors


def test_distributions_of_a_corpus_and_of_documents(corpus, tmp_path):
    found = {one.name: one for one in distributions(corpus, sample=4)}
    totals = read_manifest(corpus).totals
    assert found["sequence length"].values.sum() == found["part length"].values.sum() == totals["tokens"]
    assert len(found["part length"].values) == totals["parts"]
    assert found["redundancy"].values.shape == (4,)
    documents = make_documents(str(tmp_path / "documents"), sources=("a", "b"))
    by_source = list(distributions(documents))
    assert [one.source for one in by_source] == ["a", "b"]
    assert sum(len(one.values) for one in by_source) == read_manifest(documents).totals["documents"]


def test_pairs_tell_what_a_length_would_cut(tmp_path):
    documents = make_documents(str(tmp_path / "documents"), shards=1)
    pairs = open_pairs(make_pairs(str(tmp_path / "pairs"), documents, pairs=9, documents_per_pair=3))
    rows = all_rows(pairs.folder, "farspan.pairs")
    lengths = [
        sum(len(row["tokens"]) for row in pairs.documents.take(one["document_rows"]).to_pylist()) for one in rows
    ]
    queries = [len(one["query"]) for one in rows]
    beyond = [min(max(query + own - 100, 0), own) for query, own in zip(queries, lengths, strict=True)]
    share = sum(beyond) / sum(lengths)
    assert 0 < share < 1
    assert cuts(pairs, [100, 10_000]) == {
        "cut_at_100": {"pairs": sum(map(bool, beyond)), "share_of_document_tokens": pytest.approx(share)},
        "cut_at_10000": {"pairs": 0, "share_of_document_tokens": 0.0},
    }
    numbers = stats(pairs.folder)
    assert numbers["pairs"] == 9
    train = [own for own, one in zip(lengths, rows, strict=True) if one["split"] == "train"]
    assert numbers["length_of_a_pair's_documents_of_train"]["p50"] == np.median(train)
    assert numbers["references_of_a_pair"]["p95"] == 2
    assert numbers["cut_at_16384"]["pairs"] == 0


def test_a_run_has_commands_of_its_own(tmp_path, run):
    (tmp_path / "recipe.json").write_text("{}")
    with pytest.raises(FarspanError, match="is a run; `farspan runs` and `farspan plot` show its numbers"):
        stats(tmp_path)
    assert "is a run" in run("stats", tmp_path)[2]
