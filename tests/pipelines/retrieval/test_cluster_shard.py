"""Shards of clusters that do not hold what their manifest says."""

import os
import shutil
from dataclasses import replace

import numpy as np
import pytest

from corpora.errors import FarspanError
from corpora.retrieval.options import Search
from corpora.schemas.vectors import vector_column
from pipelines.engine.options import Engine
from pipelines.engine.run import run_job
from pipelines.retrieval import cluster, neighbours
from pipelines.retrieval.options import NeighbourSearch
from tests.artefacts import edit_sealed
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


def spoilt(folder, change):
    """A copy of clusters, checksum included, in which ``change`` has its way with the vectors of the first shard."""
    from corpora.storage.manifest_file import write_manifest
    from corpora.storage.sharded_rows import ShardedRows
    from corpora.storage.shards import write_shard

    copy = shutil.copytree(folder, f"{folder}-spoilt")
    rows = ShardedRows(copy, "farspan.clusters")
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
    write_manifest(copy, replace(rows.manifest, shards=shards))
    return copy


@pytest.mark.parametrize(
    ("value", "fault"),
    [(np.nan, r"holds NaN or infinity \(2 of 20 vectors here\)"), (-np.inf, "holds NaN"), (300.0, "has length 300")],
)
def test_a_vector_too_long_or_no_number_is_named(tmp_path, value, fault):
    def change(values):
        values[3, 2] = value

    clusters = spoilt(clustered(tmp_path, 20), change)
    with pytest.raises(FarspanError, match=rf"part-00000-of-00001.*document 'made:0:3' {fault}"):
        build(clusters, tmp_path / "neighbours")


def test_vectors_of_another_dimension_are_refused(tmp_path):
    clusters = clustered(tmp_path, 20)
    with edit_sealed(os.path.join(clusters, "manifest.json")) as values:
        values["config"]["dimension"] = 8
    with pytest.raises(FarspanError, match="vectors of 16 numbers where the manifest says 8"):
        build(clusters, tmp_path / "neighbours")
