"""Look-ups in what a corpus was made from: titles of its documents, similarities of neighbours, near-duplicates."""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cached_property, lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from corpora.errors import FarspanError
from corpora.linking.graph import Cluster
from corpora.printing import format_count
from corpora.schemas.corpus import Corpus
from corpora.schemas.documents import DocumentSet, has_titles
from corpora.schemas.vectors import PARTS_OF_CLUSTER, neighbours_schema
from corpora.storage import files
from corpora.storage.manifest import Manifest
from corpora.storage.manifest_file import NAME, find_origin, find_parent, manifest_sha256
from corpora.storage.sharded_rows import ShardedRows
from corpora.storage.shards import open_shard
from pipelines.engine.job import number_name
from pipelines.pages.page import Link, Part

_SEARCHED = 4_000_000  # maximum documents whose ids are searched for those of a row
_READ = 64 << 20  # maximum bytes of lists of near-duplicates to read for a row without a cluster


class Titles:
    """Titles of documents by id. Every look-up searches the ids of all documents, whose tokens are not read."""

    def __init__(self, documents: DocumentSet) -> None:
        self._documents = documents
        documents.read_ranges()
        self.missing = ""  # the reason why titles cannot be shown
        if not files.is_local(documents.folder):
            self.missing = f"titles are not shown: {documents.folder} is not on this machine; copy it"
        elif len(documents) > _SEARCHED:
            count = format_count(len(documents), "document")
            self.missing = f"titles are not shown: {documents.folder} has {count}, more than {_SEARCHED:,}"

    @cached_property
    def _table(self) -> pa.Table:
        """Ids and titles of all documents; views of the memory-mapped shards, unless these are compressed."""
        tables = []
        for number in range(len(self._documents.manifest.shards)):
            shard, reader = self._documents.shard(number)
            columns = [reader.schema.get_field_index(name) for name in ("document_id", "title")]
            options = pa.ipc.IpcReadOptions(included_fields=columns)
            tables.append(pa.ipc.open_file(shard, options=options).read_all())
        return pa.concat_tables(tables)

    def of(self, ids: Sequence[str]) -> dict[str, str]:
        """Return the titles of those of the given documents that have one; of none if they cannot be read."""
        if self.missing:
            return {}
        try:
            table = self._table
        except (FarspanError, OSError, pa.ArrowException) as error:  # the rows themselves can be shown
            self.missing = f"titles are not shown: {error}"
            return {}
        columns = table.filter(pc.is_in(table["document_id"], pa.array(ids, pa.string()))).to_pydict()
        return {name: title for name, title in zip(columns["document_id"], columns["title"], strict=True) if title}

    def with_titles(self, parts: Iterable[Part]) -> list[Part]:
        """Return parts of a row with the titles of their documents."""
        parts = list(parts)
        known = self.of([part.document_id for part in parts])
        return [replace(part, title=known.get(part.document_id)) for part in parts]


def find_titles(corpus: Corpus, documents: str | None = None) -> Titles | None:
    """Find the titles of the documents of a corpus, which are at the recorded place if ``documents`` is None.

    None if they have no titles, are not where they were when the corpus was made, or are recorded in a remote store.
    """
    try:
        place = documents or find_parent(corpus.folder)
        if place is None or not (documents or files.is_local(place)):
            return None
        document_set = DocumentSet(place)
        if manifest_sha256(place) != (corpus.manifest.parent or {}).get("manifest_sha256"):
            raise FarspanError(f"{os.path.join(place, NAME)}: not the documents that {corpus.folder} was made from")
    except FarspanError:
        if documents:
            raise
        return None
    return Titles(document_set) if has_titles(document_set.manifest) else None


class Links:
    """Similarities and near-duplicates of the rows of one linked corpus; one cluster is read for a row."""

    def __init__(self, folder: str, manifest: Manifest, neighbours: str | None = None) -> None:
        self._folder, self._manifest = folder, manifest
        self._lists = [name for name in manifest.files if name.startswith("near-duplicates/")]
        self._rows: ShardedRows | None = None
        # a row's cluster_id is then the number of its seed document
        self._by_seed = manifest.config["builder"] == "related"
        self.missing = ""  # the reason why similarities cannot be shown
        place = neighbours or find_origin(folder, "neighbours")
        try:
            self._rows = self._open(place)
        except FarspanError as error:
            if neighbours:
                raise
            self.missing = f"similarities of linked documents are not shown: {error}"
        self._cluster = lru_cache(maxsize=8)(self._read_cluster)

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
        known = None if self._rows is None or cluster is None else self._cluster(self._rows, cluster)
        if known is None:
            return [Link(near_duplicates=near.get(name, ())) for name in ids]
        numbers = pc.index_in(pa.array(ids, pa.string()), known.rows["document_id"]).fill_null(-1).to_pylist()
        links = [Link(near_duplicates=near.get(ids[0], ()))]
        for number in range(1, len(ids)):
            before, after = numbers[number - 1], numbers[number]
            similarity, cosine, jaccard = _relation(known, before, after)
            to_first, _, _ = _relation(known, numbers[0], after)
            links.append(Link(similarity, cosine, to_first, jaccard, near.get(ids[number], ())))
        return links

    def _read_cluster(self, rows: ShardedRows, cluster: int) -> Cluster | None:
        """Read the documents of a cluster, from those record batches of its shard that hold them."""
        if self._by_seed:
            cluster = _find_cluster(rows, cluster)
        shard = cluster // PARTS_OF_CLUSTER
        if not 0 <= shard < len(rows.manifest.shards):
            return None
        batches = -(-rows.manifest.shards[shard].rows // rows.manifest.rows_per_batch)

        def last_cluster(number: int) -> int:
            return int(rows.batch(shard, number).column("cluster_id")[-1].as_py())

        slices, first = [], -1
        for number in range(bisect_left(range(batches), cluster, key=last_cluster), batches):
            batch = rows.batch(shard, number)
            places = np.flatnonzero(batch.column("cluster_id").to_numpy() == cluster)
            if not len(places):
                break
            if first < 0:
                first = number * rows.manifest.rows_per_batch + int(places[0])
            slices.append(batch.slice(int(places[0]), len(places)))
        return Cluster.of(slices, first) if slices else None

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
            name = f"near-duplicates/{number_name('link', cluster // PARTS_OF_CLUSTER)}.arrow"
            return [one for one in self._lists if one == name]
        return self._lists if sum(self._manifest.files[name].bytes for name in self._lists) <= _READ else []


def _find_cluster(rows: ShardedRows, document: int) -> int:
    """Find the cluster of a document by its row in the documents artefact; -1 if it is in none."""
    for batch in rows.batches():
        places = np.flatnonzero(batch.column("document_row").to_numpy() == document)
        if len(places):
            return int(batch.column("cluster_id")[int(places[0])].as_py())
    return -1


def _relation(cluster: Cluster, one: int, other: int) -> tuple[float | None, float | None, float | None]:
    """Inner product, cosine and Jaccard similarity of two documents, if either lists the other."""
    if one < 0 or other < 0:
        return None, None, None
    for document, neighbour in ((one, other), (other, one)):
        place = np.flatnonzero(cluster.neighbours[document] == neighbour)
        if len(place):
            edge = cluster.neighbours.offsets[document] + place[0]
            similarity, norms = float(cluster.similarities[edge]), cluster.rows["norm"]
            product = norms[document].as_py() * norms[neighbour].as_py()
            return similarity, similarity / product if product else None, float(cluster.jaccards[edge])
    return None, None, None
