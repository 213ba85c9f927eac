"""``farspan corpus clusters``: rows of related documents, each cut to its share of the row in whole sentences.

Clusters are those of the documents (their ``cluster`` column), or seeds with their nearest neighbours. Stage *group*
makes the latter and writes where each document goes; *spill* brings the documents of a cluster together in one bucket;
*pack* shares out the room and writes one shard.
"""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass, replace

import numpy as np
import pyarrow as pa

from corpora.errors import FarspanError
from corpora.keyed import id_keys, make_key
from corpora.linking.near_duplicates import Cluster, clusters_of_shard, edge_graph
from corpora.linking.options import Linking
from corpora.packing.assemble import assemble_cuts
from corpora.packing.options import ClusterRows, Packing
from corpora.packing.related import arrange, groups
from corpora.schemas.document_use import DocumentUse
from corpora.storage.manifest import Manifest, Receipt, read_manifest
from corpora.storage.ragged import Ragged
from corpora.storage.stored_shards import StoredShard, stored_shards
from pipelines.corpus.options import ClusterCorpus
from pipelines.engine.artefacts import absolute, parent_entry, read_neighbours, some_tokens
from pipelines.engine.finalize import WORK
from pipelines.engine.job import Job, Report, Stage, Task
from pipelines.shuffle.corpus_shard import corpus_job, pack_stage, shard_count, write_corpus_shard
from pipelines.shuffle.placements import Placed, ReadPlacements, join_placed, write_placements
from pipelines.shuffle.spill import Pieces, Placement, bucket_of, first_of_key, read_bucket, spill_stages


def plan(options: ClusterCorpus) -> Job:
    """Check the options and lay out the tasks.

    Raises:
        FarspanError: an artefact is missing, the neighbours are of other documents or of another split, no document or
            no cluster in the split, a number out of range, or a bound on neighbours without these.
    """
    documents, output = absolute(options.documents), absolute(options.output)
    rows = replace(options.rows, max_documents=options.rows.largest(options.packing))
    for name in ("min_similarity", "max_jaccard"):
        if options.neighbours is None and getattr(options, name) != getattr(ClusterCorpus, name):
            flag = name.replace("_", "-")
            raise FarspanError(f"--{flag} {getattr(options, name)}: is that of neighbours; give --neighbours")
    parent = read_manifest(documents, "farspan.documents")
    graph = None if options.neighbours is None else read_neighbours(absolute(options.neighbours), documents)
    split = options.split or ("train" if graph is None else graph.config["split"])
    if graph is not None and split != graph.config["split"]:
        raise FarspanError(
            f"--split {split}: the neighbours are of {graph.config['split']} documents; leave it out, or give "
            f"--neighbours made from vectors of the {split} documents"
        )
    tokens = some_tokens(documents, parent, split)
    if graph is None and not _clustered(parent, split):
        raise FarspanError(
            f"{documents}: none of its {split} documents names a cluster; give --neighbours, or make the documents "
            "with --cluster-field, or from a format of clusters"
        )
    shards = shard_count(options.shards, tokens)
    config = {
        "builder": "clusters",
        **asdict(options.packing),
        **asdict(rows),
        **_origin(options, output),
        "split": split,
        "shards": shards,
        "compression": options.compression,
    }
    starts = tuple(np.cumsum([0, *(shard.rows for shard in parent.shards)]).tolist())
    stages: list[Stage] = []
    place: Placement = PlaceClusters(make_key(options.seed, "clusters"), shards, split == "held-out", starts)
    if graph is not None:
        stages, placements = _grouping(options, rows, graph, output, starts)
        place = ReadPlacements(placements, starts, shards, split == "held-out")
    spilling, spills = spill_stages(output, documents, parent, place, shards, options.fan_in)
    order = make_key(options.seed, "order in clusters")
    work = PackClusters(spills, options.packing, rows, order, parent.tokenizer["vocab_size"], options.compression)
    stages += [*spilling, pack_stage(output, shards, tokens, work)]
    use = DocumentUse(
        truncated=True,
        left_out="in no cluster, in a small one, or with a first sentence longer than their share of the row",
    )
    return corpus_job(output, documents, parent, config, use, options.seed, stages, 2 * tokens)


def _clustered(documents: Manifest, split: str) -> int:
    """How many documents of the split are in a cluster."""
    held_out = documents.totals.get("held_out_clustered_documents", 0)
    return held_out if split == "held-out" else documents.totals.get("clustered_documents", 0) - held_out


def _origin(options: ClusterCorpus, output: str) -> dict[str, object]:
    if options.neighbours is None:
        return {"neighbours": None}
    return {
        "neighbours": parent_entry(output, absolute(options.neighbours)),
        "min_similarity": options.min_similarity,
        "max_jaccard": options.max_jaccard,
    }


@dataclass(frozen=True)
class PlaceClusters:
    """Place every document of the split that has a cluster by the cluster's keyed hash, in the order of documents."""

    key: bytes
    buckets: int
    held_out: bool
    starts: tuple[int, ...]

    def __call__(self, index: int, batch: pa.RecordBatch) -> Pieces:
        read = batch.column("held_out").to_numpy(zero_copy_only=False) == self.held_out
        kept = read & batch.column("cluster").is_valid().to_numpy(zero_copy_only=False)
        rows = np.flatnonzero(kept)
        clusters = batch.column("cluster").take(pa.array(rows)).to_numpy()
        numbers, which = np.unique(clusters, return_inverse=True)
        keys = id_keys(self.key, map(str, numbers.tolist()))[which]
        positions = (rows + self.starts[index]).astype(np.int32)
        return Pieces(rows, bucket_of(keys[:, 0], self.buckets), keys, positions, read, kept, clusters=clusters)


def _grouping(
    options: ClusterCorpus, rows: ClusterRows, graph: Manifest, output: str, starts: tuple[int, ...]
) -> tuple[list[Stage], tuple[str, ...]]:
    """The stage that makes groups of neighbours, and the files that say where their documents go."""
    neighbours = absolute(options.neighbours or "")
    placements = [os.path.join(output, WORK, f"group-{index:05d}.arrow") for index in range(len(graph.shards))]
    tasks = [
        Task(
            f"group-{index:05d}",
            {"shard": shard, "placements": placements[index]},
            shard.rows,
        )
        for index, shard in enumerate(stored_shards(neighbours, graph))
    ]
    # of linking only what it calls a near-duplicate
    near_duplicates = Linking(min_similarity=options.min_similarity, max_jaccard=options.max_jaccard)
    work = GroupShard(rows, near_duplicates, make_key(options.seed, "groups"), starts)
    return [Stage("group", tasks, work, "documents")], tuple(placements)


@dataclass(frozen=True)
class GroupShard:
    """Make groups of the clusters of one shard of neighbours; a group's number is its seed's row in the documents."""

    rows: ClusterRows
    linking: Linking
    key: bytes
    starts: tuple[int, ...]

    def __call__(self, task: Task, report: Report) -> Receipt:
        shard: StoredShard = task.payload["shard"]
        placed = []
        totals = {"groups": 0, "grouped_documents": 0}
        done = 0
        for cluster in clusters_of_shard(shard.batches()):
            placed.append(self._place(cluster))
            totals["groups"] += int((placed[-1].positions == 0).sum())
            totals["grouped_documents"] += len(placed[-1].positions)
            done += len(cluster.rows)
            report(done)
        target = task.payload["placements"]
        write_placements(target, join_placed(placed), np.array(self.starts))
        return Receipt(task.name, totals=totals)

    def _place(self, cluster: Cluster) -> Placed:
        graph = edge_graph(cluster, self.linking)
        near = np.where(graph.near_duplicates, np.nan, graph.similarities)  # nan is not above any floor
        ids = cluster.rows.column("document_id").to_pylist()
        keys = id_keys(self.key, ids)
        made = groups(
            graph.neighbours, near, keys, self.rows.min_documents, self.rows.max_documents, self.linking.floor
        )
        rows = cluster.rows.column("document_row").to_numpy()
        documents, heads, sizes = made.values, made.offsets[:-1], made.lengths
        zeros = np.zeros(len(documents), np.int64)
        return Placed(
            document_rows=rows[documents],
            document_ids=[ids[document] for document in documents.tolist()],
            keys=np.repeat(keys[documents[heads]], sizes, axis=0),
            positions=np.arange(len(documents)) - np.repeat(heads, sizes),
            offsets=zeros,
            sizes=cluster.rows.column("document_tokens").to_numpy()[documents],
            uses=zeros,
            clusters=np.repeat(rows[documents[heads]], sizes),
        )


@dataclass(frozen=True)
class PackClusters:
    """Read one bucket back, whose clusters are runs of one key, and write their rows."""

    spills: tuple[str, ...]
    packing: Packing
    rows: ClusterRows
    key: bytes
    vocab_size: int
    compression: str | None

    def __call__(self, task: Task, report: Report) -> Receipt:
        bucket = read_bucket(self.spills, task.payload["bucket"])
        first = np.flatnonzero(first_of_key(bucket.keys))
        clusters = Ragged(np.arange(len(bucket)), np.append(first, len(bucket)))
        cuts, cluster_of_row = arrange(
            clusters,
            bucket.tokens.lengths,
            bucket.sentence_starts,
            id_keys(self.key, bucket.document_ids.to_pylist()),
            self.packing,
            self.rows,
        )
        rows = assemble_cuts(
            bucket.document_ids, bucket.tokens, bucket.sentence_starts, cuts, bucket.clusters[first[cluster_of_row]]
        )
        receipt = write_corpus_shard(
            task, rows, bucket, cuts.documents, self.packing, self.vocab_size, self.compression
        )
        used = len(np.unique(cluster_of_row))
        return replace(
            receipt, totals={**receipt.totals, "clusters_used": used, "clusters_left_out": len(first) - used}
        )
