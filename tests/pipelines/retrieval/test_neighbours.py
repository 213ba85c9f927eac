"""Clusters to neighbours: what is stored is true, whole and the same however the job ran."""

import os
import re
import shutil
from collections import Counter
from dataclasses import replace
from importlib.util import find_spec

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from corpora.errors import FarspanError
from corpora.retrieval.options import Search
from corpora.schemas.vectors import vector_column
from corpora.storage.manifest_file import read_manifest, write_manifest
from corpora.storage.ragged import Ragged
from corpora.storage.sharded_rows import ShardedRows
from corpora.storage.shards import write_shard
from corpora.text.word_ngrams import jaccard
from corpora.verify.artefact import verify
from pipelines.engine.job import Task
from pipelines.engine.options import Engine
from pipelines.engine.run import run_job
from pipelines.retrieval import cluster, neighbours
from pipelines.retrieval.neighbours import count_recall, no_queries
from pipelines.retrieval.options import Clustering, NeighbourSearch
from pipelines.shuffle.intermediate import write_array
from tests.artefacts import edit_sealed
from tests.vectors import make_vectors, table, topic_vectors

OPTIONS = Search(k=12, exact_up_to=100, probes=4)


def clustered(folder, documents, **options):
    vectors = options.pop("vectors", None)
    made = make_vectors(f"{folder}/vectors", documents, vectors=vectors, dimension=options.pop("dimension", 16))
    run_job(cluster.plan(Clustering(vectors=made, output=f"{folder}/clusters", **options)), Engine(workers=1))
    return f"{folder}/clusters"


def build(clusters, output, search=OPTIONS, engine=Engine(workers=1), **options):  # noqa: B008 (frozen)
    return run_job(
        neighbours.plan(NeighbourSearch(clusters=str(clusters), output=str(output), search=search, **options)), engine
    )


def digests(folder):
    manifest = read_manifest(str(folder))
    return [shard.sha256 for shard in manifest.shards], manifest.totals


@pytest.fixture(scope="module")
def clusters(tmp_path_factory):
    """Four first-level clusters, some above ``exact_up_to`` and some split."""
    return clustered(tmp_path_factory.mktemp("clusters"), 1200, centroids=4, max_documents=300)


@pytest.fixture(scope="module")
def reference(clusters, tmp_path_factory):
    folder = tmp_path_factory.mktemp("reference") / "neighbours"
    build(clusters, folder)
    return str(folder)


def test_every_row_mirrors_the_clusters(clusters, reference):
    assert verify(reference) == []
    before, after = table(clusters, "farspan.clusters"), table(reference, "farspan.neighbours")
    for name in ("document_id", "document_row", "document_tokens", "cluster_id"):
        assert after[name] == before[name]
    assert np.allclose(after["norm"], np.linalg.norm(before["vector"].astype(np.float64), axis=1))
    sizes = [[shard.rows for shard in read_manifest(folder).shards] for folder in (clusters, reference)]
    assert sizes[0] == sizes[1]


def test_similarities_and_jaccards_are_of_the_neighbours(clusters, reference):
    before, after = table(clusters, "farspan.clusters"), table(reference, "farspan.neighbours")
    vectors = before["vector"].astype(np.float64)
    sketches = Ragged.from_rows(before["shingles"], np.uint32)
    starts = np.repeat(*shard_starts(reference))  # (n,) first row of each row's shard
    lists = Ragged.from_rows(after["neighbours"], np.int64)
    owners = np.repeat(np.arange(len(lists)), lists.lengths)
    others = lists.values + starts[owners]
    products = (vectors[owners] * vectors[others]).sum(axis=1)
    assert np.allclose(np.concatenate(after["similarities"]).astype(np.float64), products, atol=1e-3)
    shares = jaccard(sketches, owners, others)
    assert np.allclose(np.concatenate(after["jaccards"]).astype(np.float64), shares, atol=1e-3)
    assert shares.max() > 0
    totals = read_manifest(reference).totals
    assert totals["neighbours"] == len(owners)
    assert 0 < totals["documents_searched_exactly"] < totals["documents"]


def shard_starts(folder):
    rows = [shard.rows for shard in read_manifest(folder).shards]
    return np.cumsum([0, *rows[:-1]]), rows


def test_recall_is_what_a_full_search_says(clusters, reference):
    """The sample is all of this small corpus but for chance: compared over the same documents it agrees closely."""
    before, after = table(clusters, "farspan.clusters"), table(reference, "farspan.neighbours")
    vectors, ids = before["vector"].astype(np.float64), np.array(before["cluster_id"])
    products = vectors @ vectors.T
    np.fill_diagonal(products, -np.inf)
    true = np.argsort(-products, axis=1, kind="stable")[:, :10]
    starts = np.repeat(*shard_starts(reference))
    inside = ids[true] == ids[:, None]
    listed = np.array([np.isin(true[i], np.array(after["neighbours"][i]) + starts[i]) for i in range(len(true))])
    totals = read_manifest(reference).totals
    assert 200 < totals["sampled_documents"] < 320
    assert totals["sampled_neighbours"] == 10 * totals["sampled_documents"]
    sampled = totals["sampled_in_cluster"] / totals["sampled_neighbours"]
    assert 0.1 < inside.mean() < 0.95
    assert sampled == pytest.approx(inside.mean(), abs=0.05)
    found = totals["sampled_found"] / totals["sampled_in_cluster"]
    assert found == pytest.approx(listed[inside].mean(), abs=0.05)


@pytest.mark.parametrize("count", [1, 2, 100])
def test_few_documents(tmp_path, count):
    totals = build(clustered(tmp_path, count), tmp_path / "neighbours", Search()).totals
    assert totals["documents"] == count
    assert totals["neighbours"] == count * min(100, count - 1)
    assert verify(str(tmp_path / "neighbours")) == []
    lists = table(tmp_path / "neighbours", "farspan.neighbours")["neighbours"]
    assert [len(row) for row in lists] == [min(100, count - 1)] * count


def test_equal_documents_are_neighbours_in_the_order_of_rows(tmp_path):
    vectors = np.repeat(topic_vectors(20), 5, axis=0)
    rows = table_of(build, clustered(tmp_path, 100, vectors=vectors), tmp_path / "neighbours", Search(k=4))
    for row, found in enumerate(rows["neighbours"]):
        first = row // 5 * 5
        assert found == [other for other in range(first, first + 5) if other != row]


def table_of(run, clusters, output, search):
    run(clusters, output, search)
    return table(output, "farspan.neighbours")


def test_compressed_clusters_give_the_same_neighbours(clusters, reference, tmp_path):
    vectors = os.path.join(os.path.dirname(clusters), "vectors")
    options = Clustering(
        vectors=vectors, output=str(tmp_path / "clusters"), centroids=4, max_documents=300, compression="lz4"
    )
    run_job(cluster.plan(options), Engine(workers=1))
    build(tmp_path / "clusters", tmp_path / "neighbours")
    assert digests(tmp_path / "neighbours") == digests(reference)


def test_news_finds_what_an_exact_search_finds_and_keeps_to_its_topic(tmp_path):
    """gensim's 300 + 50 news documents, as words weighted by rarity and projected at random."""
    folder = os.path.join(os.path.dirname(find_spec("gensim").origin), "test", "test_data")
    texts = []
    for name in ("lee_background.cor", "lee.cor"):
        with open(os.path.join(folder, name), encoding="utf-8", errors="replace") as file:
            texts += file.read().splitlines()
    counts = [Counter(re.findall(r"[a-z]{3,}", text.lower())) for text in texts]
    occurs = Counter(word for count in counts for word in count)
    words = {word: column for column, word in enumerate(sorted(occurs))}
    weights = np.zeros((len(texts), len(words)))
    for row, count in enumerate(counts):
        for word, number in count.items():
            weights[row, words[word]] = (1 + np.log(number)) * np.log(len(texts) / occurs[word])
    weights /= np.linalg.norm(weights, axis=1, keepdims=True)
    vectors = weights @ np.random.default_rng(0).standard_normal((len(words), 256)) / 16
    vectors = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float16)
    clusters = clustered(tmp_path, len(texts), vectors=vectors, dimension=256)

    rows = table_of(build, clusters, tmp_path / "exact", Search(k=10))["neighbours"]
    wide = vectors.astype(np.float64)
    products = wide @ wide.T
    np.fill_diagonal(products, -np.inf)
    assert [*rows] == np.argsort(-products, axis=1, kind="stable")[:, :10].tolist()

    lists = table_of(build, clusters, tmp_path / "lists", Search(k=10, exact_up_to=50, probes=20))["neighbours"]
    recall = np.mean([len({*a} & {*b}) / 10 for a, b in zip(rows, lists, strict=True)])
    assert recall > 0.9
    same_topic = weights @ weights.T
    first = np.mean([same_topic[row, found[0]] for row, found in enumerate(rows)])
    assert first > 5 * np.mean(same_topic[~np.eye(len(texts), dtype=bool)])


def test_what_cannot_work_is_refused_before_work_starts(clusters, tmp_path):
    with pytest.raises(FarspanError, match=r"--memory 1 MiB: 12 neighbours .* take \d\d MiB per worker; lower --k"):
        build(clusters, tmp_path / "neighbours", memory=1 / 1024)
    for memory in (0, -1.0, float("nan")):
        with pytest.raises(FarspanError, match=r"--memory .* give a positive number of GiB"):
            NeighbourSearch(clusters=clusters, output=str(tmp_path / "neighbours"), memory=memory)
    with pytest.raises(FarspanError, match=r"farspan\.clusters"):
        build(os.path.join(os.path.dirname(clusters), "vectors"), tmp_path / "neighbours")


def test_exact_search_in_one_cluster_has_perfect_recall(tmp_path):
    totals = build(clustered(tmp_path, 200), tmp_path / "neighbours", Search(k=5)).totals
    assert totals["sampled_documents"] == 200
    assert totals["sampled_neighbours"] == totals["sampled_in_cluster"] == totals["sampled_found"] == 1000


@given(
    shards=st.integers(1, 3),
    sizes=st.lists(st.integers(0, 3), min_size=1, max_size=3),
    depth=st.integers(1, 4),
    seed=st.integers(0, 99),
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_true_neighbours_are_counted_in_their_clusters_and_among_the_found(tmp_path, shards, sizes, depth, seed):
    """Against sorted lists of all candidates of each sampled document."""
    rng, k = np.random.default_rng(seed), 3
    parts, found = [], []
    for number, size in enumerate(sizes):
        queries = np.concatenate([no_queries(2, k), np.zeros(size, no_queries(2, k).dtype)])
        queries["cluster"] = rng.integers(0, 2, size)
        queries["neighbours"] = rng.integers(-1, 6, (size, k))
        write_array(str(tmp_path / f"queries-{number}"), queries)
        parts.append(queries)
    count = sum(sizes)
    for number in range(shards):
        exact = np.zeros((count, depth), [("product", "<f4"), ("row", "<i4"), ("cluster", "<i8")])
        exact["product"] = -np.sort(-rng.permuted(np.arange(count * depth)).reshape(count, depth), axis=1) + number / 8
        exact["row"] = rng.integers(0, 6, (count, depth))
        exact["cluster"] = rng.integers(0, 2, (count, depth))
        missing = rng.random((count, depth)) < 0.3
        exact["product"][missing], exact["row"][missing] = -np.inf, -1
        write_array(str(tmp_path / f"exact-{number}"), exact)
        found.append(exact)
    query_files, exact_files = (
        tuple(str(tmp_path / f"{kind}-{number}") for number in range(many))
        for kind, many in (("queries", len(sizes)), ("exact", shards))
    )
    totals = count_recall(query_files, exact_files, depth, Task("recall", {}, 1), lambda done: None).totals
    expected = {"sampled_documents": count, "sampled_neighbours": 0, "sampled_in_cluster": 0, "sampled_found": 0}
    for place, query in enumerate(np.concatenate(parts)):
        every = [one for exact in found for one in exact[place] if one["row"] >= 0]
        for one in sorted(every, key=lambda one: -one["product"])[:depth]:
            expected["sampled_neighbours"] += 1
            if one["cluster"] == query["cluster"]:
                expected["sampled_in_cluster"] += 1
                expected["sampled_found"] += int(one["row"] in query["neighbours"])
    assert totals == expected


def spoil(folder, change):
    """A copy of clusters, checksum included, in which ``change`` has its way with the vectors of the first shard."""
    spoilt = shutil.copytree(folder, f"{folder}-spoilt")
    rows = ShardedRows(spoilt, "farspan.clusters")
    reader, path = rows.shard(0)[1], rows.path(0)
    batches = [reader.get_batch(index) for index in range(reader.num_record_batches)]
    with write_shard(path, reader.schema, rows.manifest.rows_per_batch) as (writer, info):
        for batch in batches:
            values = np.array(batch.column("vector").flatten().to_numpy()).reshape(len(batch), -1)
            change(values)
            writer.write(
                batch.set_column(batch.schema.get_field_index("vector"), "vector", vector_column(values)).cast(
                    reader.schema
                )
            )
    shards = (info[0], *rows.manifest.shards[1:])
    write_manifest(spoilt, replace(rows.manifest, shards=shards))
    return spoilt


@pytest.mark.parametrize(
    ("value", "fault"),
    [(np.nan, r"holds NaN or infinity \(2 of 20 vectors here\)"), (-np.inf, "holds NaN"), (300.0, "has length 300")],
)
def test_a_vector_too_long_or_no_number_is_named(tmp_path, value, fault):
    def change(values):
        values[3, 2] = value

    clusters = spoil(clustered(tmp_path, 20), change)
    with pytest.raises(FarspanError, match=rf"part-00000-of-00001.*document 'made:0:3' {fault}"):
        build(clusters, tmp_path / "neighbours")


def test_vectors_of_another_dimension_are_refused(tmp_path):
    clusters = clustered(tmp_path, 20)
    with edit_sealed(os.path.join(clusters, "manifest.json")) as values:
        values["config"]["dimension"] = 8
    with pytest.raises(FarspanError, match="vectors of 16 numbers where the manifest says 8"):
        build(clusters, tmp_path / "neighbours")
