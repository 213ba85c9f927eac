"""Recall of a sample, as counted from what shards found."""

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from corpora.retrieval.options import Search
from pipelines.engine.handed_on import write_array
from pipelines.engine.job import Task
from pipelines.engine.options import Engine
from pipelines.engine.run import run_job
from pipelines.retrieval import cluster, neighbours
from pipelines.retrieval.options import NeighbourSearch
from pipelines.retrieval.recall import Recall, no_queries
from tests.vectors import make_vectors

OPTIONS = Search(k=12, exact_up_to=100, probes=4)


def clustered(folder, documents, **options):
    vectors = options.pop("vectors", None)
    made = make_vectors(f"{folder}/vectors", documents, vectors=vectors, dimension=options.pop("dimension", 16))
    run_job(cluster.plan(cluster.Clustering(vectors=made, output=f"{folder}/clusters", **options)), Engine(workers=1))
    return f"{folder}/clusters"


def build(clusters, output, search=OPTIONS, engine=Engine(workers=1), **options):  # noqa: B008 (frozen)
    return run_job(
        neighbours.plan(NeighbourSearch(clusters=str(clusters), output=str(output), search=search, **options)), engine
    )


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
    queries, exact = (
        tuple(str(tmp_path / f"{kind}-{number}") for number in range(many))
        for kind, many in (("queries", len(sizes)), ("exact", shards))
    )
    totals = Recall(queries, exact, depth)(Task("recall", {}, 1), lambda done: None).totals
    expected = {"sampled_documents": count, "sampled_neighbours": 0, "sampled_in_cluster": 0, "sampled_found": 0}
    for place, query in enumerate(np.concatenate(parts)):
        every = [one for exact in found for one in exact[place] if one["row"] >= 0]
        for one in sorted(every, key=lambda one: -one["product"])[:depth]:
            expected["sampled_neighbours"] += 1
            if one["cluster"] == query["cluster"]:
                expected["sampled_in_cluster"] += 1
                expected["sampled_found"] += int(one["row"] in query["neighbours"])
    assert totals == expected
