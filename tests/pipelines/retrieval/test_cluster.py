"""Vectors to clusters: nothing lost, nothing mixed up, the same bytes however the job ran."""

import os
import re
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from corpora.errors import FarspanError
from corpora.schemas.vectors import PARTS_OF_CLUSTER, vector_column, vectors_schema
from corpora.storage.manifest_file import read_manifest
from corpora.verify.artefact import verify
from pipelines.engine.options import Engine
from pipelines.engine.run import run_job
from pipelines.retrieval.cluster import CENTROIDS, SpilledVectors, first_level, plan
from pipelines.retrieval.options import Clustering
from pipelines.shuffle.intermediate import write_batches
from tests.artefacts import edit_sealed, make_documents
from tests.vectors import make_vectors, table, topic_vectors

OPTIONS: dict[str, Any] = {"centroids": 5, "max_documents": 60, "iterations": 5, "task_documents": 100}
SPILLED = vectors_schema(3)


def build(vectors, output, engine=Engine(workers=1), **options):  # noqa: B008 (frozen)
    return run_job(plan(Clustering(vectors=str(vectors), output=str(output), **options)), engine)


def digests(folder):
    centroids = np.load(os.path.join(folder, CENTROIDS), allow_pickle=False)
    return [shard.sha256 for shard in read_manifest(str(folder)).shards], centroids.tobytes()


@pytest.fixture(scope="module")
def vectors(tmp_path_factory):
    folder = tmp_path_factory.mktemp("vectors")
    documents = make_documents(str(folder / "documents"), shards=4, documents=100)
    return make_vectors(str(folder / "vectors"), documents)


@pytest.fixture(scope="module")
def reference(vectors, tmp_path_factory):
    folder = tmp_path_factory.mktemp("reference") / "clusters"
    build(vectors, folder, **OPTIONS)
    return str(folder)


def test_every_document_is_in_one_cluster_with_all_that_was_known_of_it(vectors, reference):
    assert verify(reference) == []
    before, after = table(vectors, "farspan.vectors"), table(reference, "farspan.clusters")
    order = np.argsort(after["document_row"])
    for name in ("document_id", "document_row", "document_tokens", "shingles"):
        assert [after[name][row] for row in order] == before[name]
    assert np.array_equal(after["vector"][order], before["vector"])


def test_documents_are_with_the_nearest_centroid(reference):
    rows = table(reference, "farspan.clusters")
    centroids = np.load(os.path.join(reference, CENTROIDS), allow_pickle=False)
    assert centroids.shape == (5, 16)
    assert centroids.dtype == np.float32
    products = rows["vector"].astype(np.float64) @ centroids.T
    chosen = np.array(rows["cluster_id"]) // PARTS_OF_CLUSTER
    assert (products[np.arange(len(chosen)), chosen] >= products.max(axis=1) - 1e-5).all()


def test_no_cluster_is_above_the_cap_and_totals_say_so(reference):
    numbers = np.array(table(reference, "farspan.clusters")["cluster_id"])
    ids, sizes = np.unique(numbers, return_counts=True)
    first_level = np.bincount(numbers // PARTS_OF_CLUSTER)
    totals = read_manifest(reference).totals
    assert sizes.max() <= 60 < first_level.max()
    assert totals["documents"] == 320
    assert totals["clusters"] == len(ids)
    assert totals["max_documents"] == sizes.max()
    assert totals["max_first_level"] == first_level.max()
    assert totals["split_clusters"] == (first_level > 60).sum()


def test_another_seed_is_another_start(vectors, reference, tmp_path):
    build(vectors, tmp_path / "other", seed=1, **OPTIONS)
    assert digests(tmp_path / "other") != digests(reference)


def test_tasks_take_whole_shards_up_to_their_size(vectors, tmp_path):
    def tasks(size):
        stages = {
            stage.name: stage
            for stage in plan(Clustering(vectors=vectors, output=str(tmp_path), task_documents=size)).stages
        }
        assert [task.units for task in stages["sample"].tasks] == [task.units for task in stages["assign"].tasks]
        return [task.units for task in stages["assign"].tasks]

    assert tasks(1) == [80] * 4
    assert tasks(160) == [160] * 2
    assert tasks(319) == [240, 80]
    assert tasks(10**6) == [320]


def test_compressed_vectors_and_clusters(vectors, reference, tmp_path):
    build(vectors, tmp_path / "small", compression="zstd", **OPTIONS)
    assert verify(str(tmp_path / "small")) == []
    small, plain = (table(folder, "farspan.clusters") for folder in (tmp_path / "small", reference))
    assert small["cluster_id"] == plain["cluster_id"]
    assert small["document_row"] == plain["document_row"]


def test_vectors_of_another_dimension_are_refused(tmp_path):
    vectors = make_vectors(str(tmp_path / "vectors"), 90)
    with edit_sealed(os.path.join(vectors, "manifest.json")) as values:
        values["config"]["dimension"] = 8
    with pytest.raises(FarspanError, match="vectors of 16 numbers where the manifest says 8"):
        build(vectors, tmp_path / "clusters")
    problems = "\n".join(verify(vectors))
    assert re.search(r"part-00000-of-00003.*column 'vector' is fixed_size_list<.*>\[16\], not .*\[8\]", problems)


def test_what_cannot_work_is_refused_before_work_starts(tmp_path, vectors):
    with pytest.raises(FarspanError, match="holds no vector"):
        plan(Clustering(vectors=make_vectors(str(tmp_path / "none"), 0), output=str(tmp_path / "clusters")))
    with pytest.raises(FarspanError, match="no farspan artefact"):
        plan(Clustering(vectors=str(tmp_path), output=str(tmp_path / "clusters")))
    with pytest.raises(FarspanError, match=r"--centroids 9: .* 320 vectors to learn from .* give at most 8, or leave"):
        plan(Clustering(vectors=vectors, output=str(tmp_path / "clusters"), centroids=9))
    with pytest.raises(FarspanError, match=r"--centroids 26: .* 1,000 vectors .* give at most 25,"):
        first_level(Clustering(vectors=vectors, output=str(tmp_path / "clusters"), centroids=26, sample=1000), 5000)
    with pytest.raises(FarspanError, match="is the folder that the job reads"):
        plan(Clustering(vectors=vectors, output=vectors))


@pytest.mark.parametrize(("count", "wanted", "clusters"), [(1, 0, 1), (2, 1, 1), (100, 2, 2), (100, 0, 1)])
def test_few_documents_have_few_clusters(tmp_path, count, wanted, clusters):
    vectors = make_vectors(str(tmp_path / "vectors"), count)
    totals = build(vectors, tmp_path / "clusters", centroids=wanted).totals
    assert totals["clusters"] == clusters
    assert totals["documents"] == count
    assert verify(str(tmp_path / "clusters")) == []


def test_equal_vectors_are_split_by_order(tmp_path):
    """K-means leaves clusters empty there, and cannot split what it fills."""
    vectors = make_vectors(str(tmp_path / "vectors"), 200, 4, vectors=np.ones((200, 4), np.float16))
    totals = build(vectors, tmp_path / "clusters", centroids=5, max_documents=50).totals
    assert totals["documents"] == 200
    assert totals["max_documents"] <= 50
    assert verify(str(tmp_path / "clusters")) == []


def test_a_vector_that_is_no_number_is_named(tmp_path):
    values = topic_vectors(90)
    values[47, 3] = np.nan
    vectors = make_vectors(str(tmp_path / "vectors"), 90, vectors=values)
    with pytest.raises(FarspanError, match=r"part-00001-of-00003.*document 'made:1:47' holds NaN"):
        build(vectors, tmp_path / "clusters")


def batch(rows: range) -> pa.RecordBatch:
    columns = {
        "document_id": pa.array([f"made:{row}" for row in rows], pa.string()),
        "document_row": pa.array(rows, pa.int64()),
        "document_tokens": pa.array([row + 1 for row in rows], pa.int32()),
        "shingles": pa.array([[row] for row in rows], pa.list_(pa.uint32())),
        "vector": vector_column(np.array([[row, 0, -row] for row in rows], np.float16).reshape(-1, 3)),
    }
    return pa.record_batch([columns[name] for name in SPILLED.names], schema=SPILLED)


@pytest.fixture
def spilled(tmp_path):
    """Cluster 1 of three spill files, one of which holds nothing of it."""
    paths = [str(tmp_path / f"{number}.arrow") for number in range(3)]
    for path, rows in zip(paths, (range(5), range(0), range(5, 9)), strict=True):
        write_batches(path, SPILLED, [batch(range(100, 103)), batch(rows)])
    return SpilledVectors(paths, 1)


def test_rows_are_numbered_over_all_spills(spilled):
    assert len(spilled) == 9
    assert spilled.document_rows.tolist() == list(range(9))


@pytest.mark.parametrize("rows", [[], [8], [7, 0, 5, 4], list(range(8, -1, -1))])
def test_rows_are_taken_in_the_order_asked_for(spilled, rows):
    rows = np.array(rows, np.int64)
    assert np.array_equal(spilled.floats(rows), np.stack([rows, 0 * rows, -rows], axis=1))
    if len(rows):
        taken = spilled.take(rows)
        assert taken.column("document_row").to_pylist() == rows.tolist()
        assert taken.column("document_id").to_pylist() == [f"made:{row}" for row in rows]
