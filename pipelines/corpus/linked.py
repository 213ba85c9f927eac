"""``farspan corpus linked``: sequences of related documents, from the neighbours of each cluster's documents.

The jobs before it (vectors, clusters, neighbours) run first, unless neighbours are given.

Stage *link* plans the sequences of one shard of neighbours and writes the placement of each document; *spill* and
*pack* move the tokens. Sequences are kept whole; a bucket of them, in keyed order, is a shard.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import pyarrow as pa

from corpora.errors import FarspanError
from corpora.keyed import id_keys, make_key
from corpora.linking.graph import clusters_of_shard
from corpora.linking.near_duplicates import NEAR_DUPLICATES, edge_graph, near_duplicates
from corpora.linking.policies import Linked, link
from corpora.options import record_options
from corpora.packing.assemble import assemble
from corpora.packing.concatenate import concatenate
from corpora.packing.options import Packing
from corpora.schemas.corpus import DocumentUse
from corpora.schemas.sequences import SequenceBatch
from corpora.storage.manifest import Receipt
from corpora.storage.shards import StoredShard, write_shard
from pipelines.corpus.options import LinkedCorpus
from pipelines.engine.artefacts import Parent, absolute, parent_entry, read_neighbours
from pipelines.engine.folder import check_output
from pipelines.engine.job import Job, Report, Task
from pipelines.retrieval.options import Clustering, Embed, NeighbourSearch
from pipelines.shuffle.corpus_shard import Packed, corpus_job, shard_count
from pipelines.shuffle.intermediate import first_of_key
from pipelines.shuffle.placements import ReadPlacements, place_pieces, placing_stage, use_numbers, write_placements
from pipelines.shuffle.spill import Bucket


def jobs(options: LinkedCorpus) -> Iterator[Job]:
    """Yield the jobs in order; each is planned when it is requested, after the one before it has run."""
    check_output(absolute(options.output))
    if options.neighbours is None:
        yield from _earlier(options)
    yield plan(options)


def _earlier(options: LinkedCorpus) -> Iterator[Job]:
    from pipelines.retrieval import cluster, embed, neighbours  # bring torch, which linking does not need

    vectors, clusters = (f"{options.stages}/{name}" for name in ("vectors", "clusters"))
    earlier = options.earlier
    embedding = Embed(documents=options.documents, output=vectors, **vars(earlier.embedding))
    clustering = Clustering(vectors=vectors, output=clusters, **vars(earlier.clustering))
    search = NeighbourSearch(clusters=clusters, output=options.neighbours_folder, **vars(earlier.search))
    job = embed.plan(embedding)
    count = embed.count_vectors(embedding)
    if not count:
        raise FarspanError(
            f"--min-document-tokens {embedding.min_document_tokens}: no document of split {embedding.split} in "
            f"{options.documents} has as many; give less"
        )
    # what clustering and search will check, before hours of embedding
    largest = -(-count // cluster.first_level(clustering, count))  # at least so many are in the largest cluster
    if largest <= clustering.max_documents:
        neighbours.check_memory(search, largest, job.head.config["dimension"])
    yield job
    yield cluster.plan(clustering)
    yield neighbours.plan(search)


def plan(options: LinkedCorpus) -> Job:
    """Check the options and declare the tasks."""
    documents = Parent.read(options.documents, "farspan.documents")
    neighbours = read_neighbours(options.neighbours_folder, documents)
    output = absolute(options.output)
    options = replace(options, output=output, linking=options.linking.resolved)
    tokens, split = neighbours.manifest.totals["tokens"], neighbours.manifest.config["split"]
    linking = options.linking
    shards = shard_count(options.shards, -(-tokens * (1 + linking.max_uses) // 2))
    config = {
        "builder": "linked",
        **record_options(options, shards=shards),
        "split": split,
        "neighbours": parent_entry(output, neighbours.folder),
    }
    starts = documents.first_rows
    linking_stage, placements = placing_stage(output, "link", neighbours, partial(_link_shard, options, starts))
    use = DocumentUse(
        truncated=options.packing.drop_ragged_tail,
        max_uses=linking.max_uses,
        one_shard=False,
        left_out="without a vector, in no linked sequence, or repeating another",
    )
    return corpus_job(
        options,
        documents,
        ReadPlacements(placements, starts, split == "held-out"),
        partial(pack_linked, options.packing),
        packing=options.packing,
        shards=shards,
        tokens=tokens,
        config=config,
        use=use,
        before=[linking_stage],
        neighbours=neighbours,
    )


def _link_shard(options: LinkedCorpus, starts: Sequence[int], task: Task, report: Report) -> Receipt:
    """Plan the sequences of the clusters of one shard of neighbours."""
    shard: StoredShard = task.payload["shard"]
    choices = make_key(options.seed, "link")
    order = make_key(options.seed, "link order")
    placed, duplicates = [], []
    totals: Counter[str] = Counter()
    done = 0
    for cluster in clusters_of_shard(shard.batches()):
        ids = cluster.rows.column("document_id").to_pylist()
        graph = edge_graph(cluster, options.linking)
        lengths = cluster.rows.column("document_tokens").to_numpy().astype(np.int64)
        linked = link(graph, lengths, id_keys(choices, ids), options.packing, options.linking)
        rows = cluster.rows.column("document_row").to_numpy()
        placed.append(_place(linked, lengths, rows, ids, order, cluster.number, options.leftovers))
        duplicates.append(near_duplicates(cluster, graph, linked.refused))
        totals.update(
            linked_sequences=len(linked.parts),
            linked_documents=int((linked.uses > 0).sum()),
            links=int((~np.isnan(linked.similarities)).sum()),
            left_over_documents=len(linked.leftovers),
            repeated_documents=len(linked.repeated),
            near_duplicate_pairs=len(linked.refused),
        )
        done += len(ids)
        report(done)
    write_placements(task.payload["placements"], placed, np.array(starts))
    if totals["near_duplicate_pairs"]:
        path = os.path.join(options.output, "near-duplicates", f"{task.name}.arrow")
        with write_shard(path, NEAR_DUPLICATES, 1024) as (writer, _):
            for batch in duplicates:
                writer.write(batch)
    return Receipt(task.name, totals=dict(totals))


def _place(
    linked: Linked, lengths: np.ndarray, rows: np.ndarray, ids: list[str], key: bytes, cluster: int, leftovers: str
) -> pa.RecordBatch:
    """Place the pieces of a cluster's sequences and its leftovers, keyed by sequence or document."""
    parts = linked.parts.compact()
    uses = use_numbers(parts, linked.offsets)
    heads = parts.offsets[:-1]
    # a sequence is named by its first piece: no two begin with the same piece of the same use
    names = [
        f"{ids[document]}\0{offset}\0{use}"
        for document, offset, use in zip(
            parts.values[heads].tolist(), linked.offsets[heads].tolist(), uses[heads].tolist(), strict=True
        )
    ]
    keys = np.repeat(id_keys(key, names), parts.lengths, axis=0)  # (parts, 2)
    positions = np.arange(len(parts.values)) - np.repeat(heads, parts.lengths)
    left = linked.leftovers if leftovers == "concatenate" else linked.leftovers[:0]
    documents = np.concatenate([parts.values, left])
    zeros = np.zeros(len(left), np.int64)
    return place_pieces(
        rows[documents],
        [ids[document] for document in documents.tolist()],
        np.concatenate([keys, id_keys(key, [ids[document] for document in left.tolist()])]),
        position=np.concatenate([positions, zeros - 1]),
        offset=np.concatenate([linked.offsets, zeros]),
        size=np.concatenate([linked.sizes, lengths[left]]),
        use=np.concatenate([uses, zeros]),
        cluster=np.full(len(documents), cluster),
    )


def pack_linked(packing: Packing, bucket: Bucket) -> Packed:
    """Assemble the planned sequences of a bucket, and concatenate its leftovers behind them."""
    planned, left = np.flatnonzero(bucket.positions >= 0), np.flatnonzero(bucket.positions < 0)
    packed = concatenate(
        bucket.document_ids.take(pa.array(left)), bucket.tokens.take(left), bucket.sentence_starts.take(left), packing
    )
    rows = SequenceBatch.concatenate([linked_rows(bucket, planned), packed.sequences])
    return Packed(rows, np.concatenate([planned, left[packed.documents]]))


def linked_rows(bucket: Bucket, chosen: np.ndarray) -> SequenceBatch:
    """Assemble the ``(c,)`` chosen pieces; those with the same key are one row."""
    first = first_of_key(bucket.keys[chosen])
    tokens, sentences = bucket.tokens.take(chosen), bucket.sentence_starts.take(chosen)
    return assemble(
        bucket.document_ids.take(pa.array(chosen)),
        tokens,
        sentences.values + np.repeat(tokens.offsets[:-1], sentences.lengths),
        bucket.offsets[chosen],
        bucket.lengths[chosen],
        np.append(np.flatnonzero(first), len(chosen)),
        bucket.uses[chosen],
        bucket.clusters[chosen][first],
    )
