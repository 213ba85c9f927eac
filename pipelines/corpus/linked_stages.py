"""All jobs of ``farspan corpus linked``: vectors, clusters and neighbours, unless given, then the corpus."""

from __future__ import annotations

from collections.abc import Iterator

from corpora.errors import FarspanError
from pipelines.corpus import linked
from pipelines.corpus.options import LinkedCorpus
from pipelines.engine.artefacts import absolute
from pipelines.engine.folder import check_output
from pipelines.engine.job import Job
from pipelines.retrieval import cluster, embed, neighbours
from pipelines.retrieval.options import Clustering, Embed, NeighbourSearch


def jobs(options: LinkedCorpus) -> Iterator[Job]:
    """Yield the jobs in order; each is planned when it is requested, after the one before it has run."""
    check_output(absolute(options.output))
    if options.neighbours is None:
        yield from _earlier(options)
    yield linked.plan(options)


def _earlier(options: LinkedCorpus) -> Iterator[Job]:
    vectors, clusters = (f"{options.stages}/{name}" for name in ("vectors", "clusters"))
    earlier = options.earlier
    embedding = Embed(documents=options.documents, output=vectors, **vars(earlier.embedding))
    clustering = Clustering(vectors=vectors, output=clusters, **vars(earlier.clustering))
    search = NeighbourSearch(clusters=clusters, output=options.neighbours_folder, **vars(earlier.search))
    job = embed.plan(embedding)
    _check_clusters(clustering, search, _count_vectors(embedding), job.head.config["dimension"])
    yield job
    yield cluster.plan(clustering)
    yield neighbours.plan(search)


def _count_vectors(options: Embed) -> int:
    vectors = embed.count_vectors(options)
    if not vectors:
        raise FarspanError(
            f"--min-document-tokens {options.min_document_tokens}: no document of split {options.split} in "
            f"{options.documents} has as many; give less"
        )
    return vectors


def _check_clusters(clustering: Clustering, search: NeighbourSearch, vectors: int, dimension: int) -> None:
    """Check what clustering and search will check, before hours of embedding."""
    largest = -(-vectors // cluster.first_level(clustering, vectors))  # at least so many are in the largest cluster
    if largest <= clustering.max_documents:
        neighbours.check_memory(search, largest, dimension)
