"""Links between the documents of a linked row: similarities of neighbours, and near-duplicates."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from corpora.errors import FarspanError
from corpora.schemas.vectors import PARTS_OF_CLUSTER, neighbours_schema
from corpora.storage.manifest import Manifest
from corpora.storage.manifest_file import NAME, manifest_sha256
from corpora.storage.origins import find_origin
from corpora.storage.ragged import Ragged
from corpora.storage.sharded_rows import ShardedRows
from corpora.storage.shards import open_shard
from pipelines.engine.job import numbered
from pipelines.pages.page import Link
from pipelines.pages.row import Part

_READ = 64 << 20  # maximum bytes of lists of near-duplicates to read for a row without a cluster


@dataclass(frozen=True)
class _Cluster:
    """The documents of one cluster: their ids, norms, and neighbours as numbers of documents."""

    ids: pa.Array
    norms: np.ndarray
    neighbours: Ragged
    similarities: Ragged
    jaccards: Ragged


_EMPTY = Ragged(np.zeros(0, np.float32), np.zeros(1, np.int64))
_NO_CLUSTER = _Cluster(pa.array([], pa.string()), np.zeros(0, np.float32), _EMPTY, _EMPTY, _EMPTY)


class Links:
    """Similarities and near-duplicates of the rows of one linked corpus; one cluster is read for a row.

    Attributes:
        missing: the reason why similarities cannot be shown; empty if they can.
    """

    def __init__(self, folder: str, manifest: Manifest, neighbours: str | None = None) -> None:
        self._folder, self._manifest = folder, manifest
        self._lists = [name for name in manifest.files if name.startswith("near-duplicates/")]
        self._rows: ShardedRows | None = None
        # a row's cluster_id is then the number of its seed document
        self._by_seed = manifest.config["builder"] == "related"
        self.missing = ""
        place = neighbours or find_origin(folder, "neighbours")
        try:
            self._rows = self._open(place)
        except FarspanError as error:
            if neighbours:
                raise
            self.missing = f"similarities of linked documents are not shown: {error}"
        self._cluster = lru_cache(maxsize=8)(self._read_cluster)
        self._cluster_of_seed = lru_cache(maxsize=256)(self._find_seed)

    def _open(self, place: str | None) -> ShardedRows:
        if place is None:
            raise FarspanError("the folder of the neighbours is not recorded; give it: --neighbours DIR")
        rows = ShardedRows(place, "farspan.neighbours")
        rows.schema = neighbours_schema()
        if manifest_sha256(place) != self._manifest.config["neighbours"]["manifest_sha256"]:
            raise FarspanError(f"{os.path.join(place, NAME)}: not the neighbours that {self._folder} was made from")
        return rows

    def of(self, parts: list[Part], cluster: int | None) -> list[Link]:
        """Return the link of each part of a row."""
        ids = [part.document_id for part in parts]
        near = self._near_duplicates(ids, cluster)
        if self._rows is None or cluster is None:
            return [Link(near_duplicates=near.get(name, ())) for name in ids]
        known = self._cluster(self._cluster_of_seed(cluster) if self._by_seed else cluster)
        numbers = pc.index_in(pa.array(ids, pa.string()), known.ids).fill_null(-1).to_pylist()
        links = [Link(near_duplicates=near.get(ids[0], ()))]
        for number in range(1, len(ids)):
            before, after = numbers[number - 1], numbers[number]
            similarity, cosine, jaccard = _relation(known, before, after)
            to_first, _, _ = _relation(known, numbers[0], after)
            links.append(Link(similarity, cosine, to_first, jaccard, near.get(ids[number], ())))
        return links

    def _find_seed(self, document: int) -> int:
        """Find the cluster of a document by its row in the documents artefact; -1 if it is in none."""
        assert self._rows is not None
        for batch in self._rows.batches():
            places = np.flatnonzero(batch.column("document_row").to_numpy() == document)
            if len(places):
                return int(batch.column("cluster_id")[int(places[0])].as_py())
        return -1

    def _read_cluster(self, cluster: int) -> _Cluster:
        """Read the documents of a cluster, from those record batches of its shard that hold them."""
        assert self._rows is not None
        shard = cluster // PARTS_OF_CLUSTER
        if not 0 <= shard < len(self._rows.manifest.shards):
            return _NO_CLUSTER
        batches = -(-self._rows.manifest.shards[shard].rows // self._rows.manifest.rows_per_batch)
        low, high = 0, batches  # binary search for the first record batch that ends in this cluster or a later one
        while low < high:
            middle = (low + high) // 2
            if self._rows.batch(shard, middle).column("cluster_id")[-1].as_py() < cluster:
                low = middle + 1
            else:
                high = middle
        slices, first = [], -1
        for number in range(low, batches):
            batch = self._rows.batch(shard, number)
            places = np.flatnonzero(batch.column("cluster_id").to_numpy() == cluster)
            if not len(places):
                break
            if first < 0:
                first = number * self._rows.manifest.rows_per_batch + int(places[0])
            slices.append(batch.slice(int(places[0]), len(places)))
        if not slices:
            return _NO_CLUSTER
        table = pa.Table.from_batches(slices).combine_chunks()

        def column(name: str) -> Ragged:
            return Ragged.from_arrow(table.column(name).chunk(0)).compact()

        neighbours = column("neighbours")
        return _Cluster(
            table.column("document_id").chunk(0),
            table.column("norm").to_numpy(),
            Ragged(neighbours.values - first, neighbours.offsets),
            column("similarities"),
            column("jaccards"),
        )

    def _near_duplicates(self, ids: list[str], cluster: int | None) -> dict[str, tuple[tuple[str, float | None], ...]]:
        """Document id -> its near-duplicates that the corpus lists, with their similarities."""
        near: dict[str, dict[str, float | None]] = {}
        wanted = pa.array(ids, pa.string())
        for name in self._lists_of(cluster):
            reader = open_shard(os.path.join(self._folder, name))
            for number in range(reader.num_record_batches):
                batch = reader.get_batch(number)
                for side, other in (("document_id", "near_duplicate"), ("near_duplicate", "document_id")):
                    for pair in batch.filter(pc.is_in(batch.column(side), wanted)).to_pylist():
                        near.setdefault(pair[side], {})[pair[other]] = pair["similarity"]
        return {name: tuple(sorted(others.items())) for name, others in near.items()}

    def _lists_of(self, cluster: int | None) -> list[str]:
        if cluster is not None:  # its near-duplicates are in the list of the task that linked its shard
            name = f"near-duplicates/{numbered('link', cluster // PARTS_OF_CLUSTER)}.arrow"
            return [name] if name in self._lists else []
        return self._lists if sum(self._manifest.files[name].bytes for name in self._lists) <= _READ else []


def _relation(cluster: _Cluster, one: int, other: int) -> tuple[float | None, float | None, float | None]:
    """Inner product, cosine and Jaccard similarity of two documents, if either lists the other."""
    if one < 0 or other < 0:
        return None, None, None
    for document, neighbour in ((one, other), (other, one)):
        place = np.flatnonzero(cluster.neighbours[document] == neighbour)
        if len(place):
            similarity = float(cluster.similarities[document][place[0]])
            norms = float(cluster.norms[document] * cluster.norms[neighbour])
            return similarity, similarity / norms if norms else None, float(cluster.jaccards[document][place[0]])
    return None, None, None
