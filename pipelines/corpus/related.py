"""``farspan corpus related``: rows of related documents, each cut after whole sentences to its share of the row.

Clusters are those of the documents (their ``cluster`` column), or seeds with their nearest neighbours. In the second
case, stage *group* makes them and writes the placement of each document. Stage *spill* collects the documents of a
cluster in one bucket; *pack* divides each row among its documents and writes one shard.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import pyarrow as pa

from corpora.errors import FarspanError
from corpora.keyed import id_keys, make_key
from corpora.linking.graph import Cluster, clusters_of_shard
from corpora.linking.near_duplicates import edge_graph
from corpora.linking.options import Linking
from corpora.options import record_options
from corpora.packing.assemble import assemble_cuts
from corpora.packing.options import Packing, RelatedRows
from corpora.packing.related import arrange, form_groups
from corpora.schemas.corpus import DocumentUse
from corpora.storage.arrow_views import booleans, validity
from corpora.storage.manifest import Manifest, Receipt
from corpora.storage.ragged import Ragged
from corpora.storage.shards import StoredShard
from pipelines.corpus.options import RelatedCorpus
from pipelines.engine.artefacts import Parent, absolute, parent_entry, read_neighbours, require_tokens
from pipelines.engine.job import Job, Report, Stage, Task
from pipelines.shuffle.corpus_shard import Packed, corpus_job, shard_count
from pipelines.shuffle.intermediate import first_of_key
from pipelines.shuffle.placements import ReadPlacements, place_pieces, placing_stage, write_placements
from pipelines.shuffle.spill import Bucket, Pieces, Placement

_BOUNDS = ("min_similarity", "max_jaccard")  # options that apply to neighbours only


def plan(options: RelatedCorpus) -> Job:
    """Check the options and declare the tasks."""
    output, documents = absolute(options.output), Parent.read(options.documents, "farspan.documents")
    rows = replace(options.rows, max_documents=options.rows.largest(options.packing))
    neighbours = _neighbours(options, documents)
    split = _split(options, documents, neighbours)
    tokens = require_tokens(documents.folder, documents.manifest, split)
    shards = shard_count(options.shards, tokens)
    entry, unused = (parent_entry(output, neighbours.folder), ()) if neighbours else (None, _BOUNDS)
    decided = {"rows": rows, "split": split, "shards": shards, "neighbours": entry}
    config = {"builder": "related", **record_options(options, without=unused, **decided)}
    starts, held_out = documents.first_rows, split == "held-out"
    before: list[Stage] = []
    place: Placement = partial(_place_clusters, make_key(options.seed, "clusters"), held_out, starts)
    if neighbours is not None:
        # grouping uses only the rules for near-duplicates and the minimum similarity
        rules = Linking(min_similarity=options.min_similarity, max_jaccard=options.max_jaccard)
        grouping = partial(_group_shard, rows, rules, make_key(options.seed, "groups"), starts)
        stage, placements = placing_stage(output, "group", neighbours, grouping)
        before, place = [stage], ReadPlacements(placements, starts, held_out)
    use = DocumentUse(
        truncated=True,
        left_out="in no cluster, in a small one, or with a first sentence longer than their share of the row",
    )
    return corpus_job(
        options,
        documents,
        place,
        partial(_pack_clusters, options.packing, rows, make_key(options.seed, "order in clusters")),
        packing=options.packing,
        shards=shards,
        tokens=tokens,
        config=config,
        use=use,
        before=before,
        neighbours=neighbours,
    )


def _neighbours(options: RelatedCorpus, documents: Parent) -> Parent | None:
    if options.neighbours is not None:
        return read_neighbours(options.neighbours, documents)
    for name in _BOUNDS:
        if getattr(options, name) != getattr(RelatedCorpus, name):
            flag = name.replace("_", "-")
            raise FarspanError(f"--{flag} {getattr(options, name)}: applies to neighbours only; give --neighbours")
    return None


def _split(options: RelatedCorpus, documents: Parent, neighbours: Parent | None) -> str:
    """``train`` or ``held-out``: the split of the neighbours, if there are any."""
    split = options.split or "train"
    if neighbours is None:
        if not _count_clustered(documents.manifest, split):
            require_tokens(documents.folder, documents.manifest, split)
            raise FarspanError(
                f"{documents.folder}: none of its {split} documents names a cluster; give --neighbours, or make the "
                "documents with --cluster-field, or from a format of clusters"
            )
        return split
    of_neighbours: str = neighbours.manifest.config["split"]
    if options.split not in (None, of_neighbours):
        raise FarspanError(
            f"--split {split}: the neighbours are of {of_neighbours} documents; leave it out, or give --neighbours "
            f"made from vectors of the {split} documents"
        )
    return of_neighbours


def _count_clustered(documents: Manifest, split: str) -> int:
    """Number of the split's documents that are in a cluster."""
    held_out = documents.totals.get("held_out_clustered_documents", 0)
    return held_out if split == "held-out" else documents.totals.get("clustered_documents", 0) - held_out


def _place_clusters(key: bytes, held_out: bool, starts: Sequence[int], index: int, batch: pa.RecordBatch) -> Pieces:
    """Place every clustered document of the split by the keyed hash of its cluster, in the order of documents."""
    read = booleans(batch.column("held_out")) == held_out
    rows = np.flatnonzero(read & validity(batch.column("cluster")))
    clusters = batch.column("cluster").take(pa.array(rows)).to_numpy()
    numbers, indices = np.unique(clusters, return_inverse=True)
    high, low = id_keys(key, map(str, numbers.tolist()))[indices].T
    positions = (rows + starts[index]).astype(np.int32)
    return Pieces(rows, read, {"key_high": high, "key_low": low, "position": positions, "cluster": clusters})


def _group_shard(
    rows: RelatedRows, linking: Linking, key: bytes, starts: Sequence[int], task: Task, report: Report
) -> Receipt:
    """Make groups in the clusters of one shard of neighbours; the number of a group is its seed's document row."""
    shard: StoredShard = task.payload["shard"]
    placed = []
    totals = {"groups": 0, "grouped_documents": 0}
    done = 0
    for cluster in clusters_of_shard(shard.batches()):
        placed.append(_place_groups(rows, linking, key, cluster))
        totals["groups"] += int((placed[-1].column("position").to_numpy() == 0).sum())
        totals["grouped_documents"] += len(placed[-1])
        done += len(cluster.rows)
        report(done)
    write_placements(task.payload["placements"], placed, np.array(starts))
    return Receipt(task.name, totals=totals)


def _place_groups(group_rows: RelatedRows, linking: Linking, key: bytes, cluster: Cluster) -> pa.RecordBatch:
    graph = edge_graph(cluster, linking)
    near = np.where(graph.near_duplicates, np.nan, graph.similarities)  # nan is below any floor
    ids = cluster.rows.column("document_id").to_pylist()
    keys = id_keys(key, ids)
    grouped = form_groups(
        graph.neighbours, near, keys, group_rows.min_documents, group_rows.max_documents, linking.floor
    )
    rows = cluster.rows.column("document_row").to_numpy()
    documents, heads, sizes = grouped.values, grouped.offsets[:-1], grouped.lengths
    zeros = np.zeros(len(documents), np.int64)
    return place_pieces(
        rows[documents],
        [ids[document] for document in documents.tolist()],
        np.repeat(keys[documents[heads]], sizes, axis=0),
        position=np.arange(len(documents)) - np.repeat(heads, sizes),
        offset=zeros,
        size=cluster.rows.column("document_tokens").to_numpy()[documents],
        use=zeros,
        cluster=np.repeat(rows[documents[heads]], sizes),
    )


def _pack_clusters(packing: Packing, row_options: RelatedRows, key: bytes, bucket: Bucket) -> Packed:
    """Make the rows of a bucket's clusters, each a run of equal keys."""
    first = np.flatnonzero(first_of_key(bucket.keys))
    cuts, cluster_of_row = arrange(
        Ragged(np.arange(len(bucket)), np.append(first, len(bucket))),
        bucket.tokens.lengths,
        bucket.sentence_starts,
        id_keys(key, bucket.document_ids.to_pylist()),
        packing,
        row_options,
    )
    rows = assemble_cuts(
        bucket.document_ids, bucket.tokens, bucket.sentence_starts, cuts, bucket.clusters[first[cluster_of_row]]
    )
    used = len(np.unique(cluster_of_row))
    return Packed(rows, cuts.documents, {"clusters_used": used, "clusters_left_out": len(first) - used})
