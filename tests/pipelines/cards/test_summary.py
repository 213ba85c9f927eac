"""The line that sums up an artefact."""

from __future__ import annotations

from dataclasses import asdict, replace

import pytest

from corpora.schemas.corpus import DocumentUse
from corpora.storage.manifest import ShardInfo
from corpora.storage.manifest_file import read_manifest
from pipelines.cards.summary import shares, summary
from tests.artefacts import make_corpus, make_documents


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return make_corpus(str(tmp_path_factory.mktemp("summary") / "corpus"))


def with_counts(manifest, **numbers):
    return replace(manifest, counts={name: {**count, **numbers} for name, count in manifest.counts.items()})


def test_the_reason_for_left_out_documents_is_the_builders(corpus):
    manifest = with_counts(read_manifest(corpus), filtered=3, read=83)
    assert "3 of 83 documents left out (too short, too long, or in a dropped tail)" in summary(manifest)
    use = asdict(DocumentUse(left_out="written on a Monday"))
    fifth = replace(manifest, config={**manifest.config, "builder": "fifth", "document_use": use})
    assert "3 of 83 documents left out (written on a Monday)" in summary(fifth)


def test_documents_are_left_out_when_too_short(tmp_path):
    manifest = read_manifest(make_documents(str(tmp_path / "documents")))
    assert "left out" not in summary(manifest)
    assert "2 of 9 documents left out (too short)" in summary(
        replace(manifest, counts={"a": {"read": 9, "filtered": 2}})
    )


def test_sums_come_first_and_maxima_name_their_unit(corpus):
    totals = {"max_documents": 3, "max_tokens": 1020, "held_out_tokens": 5, "padding": 957, "parts": 1, "tokens": 0}
    words = summary(replace(read_manifest(corpus), totals={**totals, "sequences": 2}))
    assert words.startswith(
        "5 held-out tokens, 957 positions of padding, 1 part, 2 sequences; at most 3 documents and 1,020 tokens in a "
        "sequence; "
    )


def test_empty_artefacts_and_equal_draws_are_pointed_out(corpus):
    manifest = read_manifest(corpus)
    assert summary(replace(manifest, shards=())).startswith("EMPTY, no row was written")
    shard = ShardInfo("part-00000-of-00002.arrow", 1, 0, 5, "0" * 64)
    totals = {"sequences": 2, "unmasked": 2}
    masks = replace(manifest, format="farspan.masks", config={"draws": 2}, totals=totals, shards=(shard, shard))
    assert "NO row has a target token" in summary(masks)
    assert "all 2 draws are equal" in summary(masks)


def test_shares_of_clusters_and_of_found_neighbours(corpus):
    totals = {"clusters": 4, "documents": 100, "max_documents": 50, "sampled_neighbours": 10}
    totals |= {"sampled_in_cluster": 8, "sampled_found": 6}
    assert shares(replace(read_manifest(corpus), totals=totals)) == {
        "skew": 2.0,
        "recall": 0.6,
        "recall_of_search": 0.75,
        "lost_at_cluster_borders": pytest.approx(0.2),
    }
