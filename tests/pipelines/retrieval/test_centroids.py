"""Centroids of few vectors, of equal ones and of broken ones."""

import numpy as np
import pytest

from corpora.errors import FarspanError
from corpora.verify.artefact import verify
from pipelines.engine.options import Engine
from pipelines.engine.run import run_job
from pipelines.retrieval.cluster import plan
from pipelines.retrieval.options import Clustering
from tests.vectors import make_vectors, topic_vectors


def build(vectors, output, engine=Engine(workers=1), **options):  # noqa: B008 (frozen)
    return run_job(plan(Clustering(vectors=str(vectors), output=str(output), **options)), engine)


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
