"""Stages of `farspan pairs` after reading: merge records of the same pair, decide splits, write the final shards."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

import numpy as np
import pyarrow as pa

from corpora.keyed import id_keys, make_key
from corpora.readers import Reject
from corpora.schemas.pairs import PAIR_TOTALS, SPLITS, add_pair_totals, pairs_schema
from corpora.storage.arrow_views import numbers
from corpora.storage.manifest import Receipt
from corpora.storage.ragged import Ragged
from corpora.storage.shards import write_shard
from pipelines.documents.shard import RejectsShard
from pipelines.engine.job import Report, Task, count_by_source
from pipelines.pairs.tokenize import ROWS_PER_BATCH, unmerged_schema
from pipelines.shuffle.intermediate import first_of_key, read_array, read_checked_shard, write_array

_KEY = make_key(0, "pairs")


def _rows(paths: Sequence[str], vocab_size: int) -> tuple[pa.Table, np.ndarray]:
    """Read the rows of all unmerged shards as views of their files, and ``(shards + 1,)``, the first row of each."""
    shards = [list(read_checked_shard(path)) for path in paths]
    table = pa.Table.from_batches([batch for shard in shards for batch in shard], unmerged_schema(vocab_size))
    return table, np.cumsum([0, *(sum(map(len, shard)) for shard in shards)])


def group_pairs(
    unmerged: Sequence[str], vocab_size: int, draw: tuple[int, float, float] | None, task: Task, report: Report
) -> Receipt:
    """Find the rows of the same pair, decide the split of each pair, and count the documents.

    ``draw`` is the seed and the shares of validation and test; None if splits are not drawn. Writes ``(rows, 2)``
    int64: the first row of each row's pair, -1 for a rejected row; and the split, as an index into ``SPLITS``.
    """
    rows, _ = _rows(unmerged, vocab_size)
    first = first_of_equal(id_keys(_KEY, rows.column("pair_id").to_pylist()), _contents(rows))
    documents = Ragged.from_arrow(rows.column("document_rows").combine_chunks())
    splits = rows.column("split")
    if draw is not None and len(rows):
        seed, validation, test = draw
        ids = rows.column("document_ids").combine_chunks().flatten().to_pylist()
        splits = draw_splits(documents, ids, seed, validation, test)
    indices = np.array([SPLITS.index(split) for split in splits.to_pylist()], np.int64)
    write_array(task.payload["groups"], np.column_stack([first, indices]))
    kept = np.flatnonzero(first == np.arange(len(first)))
    used, several = in_several_splits(documents.take(kept), indices[kept])
    return Receipt(task.name, totals={"documents": used, "documents_in_several_splits": several})


def write_pairs(
    unmerged: Sequence[str],
    groups: str,
    output: str,
    vocab_size: int,
    compression: str | None,
    task: Task,
    report: Report,
) -> Receipt:
    """Write a final shard: the pairs whose first record is in an unmerged shard, with the answers of all records."""
    rows, starts = _rows(unmerged, vocab_size)
    first, splits = read_array(groups).T
    index = task.payload["index"]
    members = np.arange(starts[index], starts[index + 1])
    totals = dict.fromkeys(PAIR_TOTALS, 0)
    schema = pairs_schema(vocab_size)
    kept = members[first[members] == members]
    with write_shard(task.payload["shard"], schema, ROWS_PER_BATCH, compression) as (writer, info):
        for begin in range(0, len(kept), ROWS_PER_BATCH):
            batch = merge_answers(rows, first, splits, kept[begin : begin + ROWS_PER_BATCH], schema)
            add_pair_totals(totals, batch)
            writer.write(batch)
            report(begin)
    of_pair, sources = first[members], np.array(rows.column("source").take(members).to_pylist(), object)
    written, rejected = of_pair == members, of_pair < 0
    counts = count_by_source(sources, written=written, filtered=~(written | rejected), rejected=rejected)
    with RejectsShard.create(output, task.name) as rejects:
        duplicates = rows.take(members[rejected]).select(["pair_id", "source", "path", "record"])
        for row in duplicates.to_pylist():
            detail = (
                f"an earlier record has the id {row['pair_id']!r}, but another query, split, other options or "
                "documents; give each question an id of its own"
            )
            rejects.write(row["source"], row["path"], [Reject("", row["record"], "duplicate_id", b"", detail)])
    return Receipt(task.name, tuple(info), totals, counts, dict(rejects.reasons))


def merge_answers(
    rows: pa.Table, first: np.ndarray, splits: np.ndarray, kept: np.ndarray, schema: pa.Schema
) -> pa.RecordBatch:
    """Build the rows of ``pairs_schema`` for n pairs, each with the targets and references of all its records.

    ``rows`` is of ``unmerged_schema``; ``first``, ``(rows,)`` int64, is the first record of each record's pair;
    ``splits``, ``(rows,)`` int64, indices of ``SPLITS``; ``kept``, ``(n,)`` int64, the pairs' first records, ascending.
    """
    members = np.flatnonzero(np.isin(first, kept))
    members = members[np.argsort(first[members], kind="stable")]
    sizes = np.unique(first[members], return_counts=True)[1]  # (n,) records of each pair
    columns, answers = rows.take(kept), rows.select(["targets", "references"]).take(members)
    arrays = {name: columns.column(name).combine_chunks() for name in schema.names}
    for name in ("targets", "references"):
        arrays[name] = _join(answers.column(name).combine_chunks(), sizes, schema.field(name).type)
    arrays["split"] = pa.array([SPLITS[number] for number in splits[kept].tolist()], pa.string())
    return pa.record_batch(list(arrays.values()), schema=schema)


def _join(lists: pa.Array, sizes: np.ndarray, kind: pa.DataType) -> pa.Array:
    """Join consecutive lists, ``sizes`` of them at a time."""
    edges = numbers(lists.offsets)[np.cumsum([0, *sizes.tolist()])]
    return pa.ListArray.from_arrays(pa.array(edges, pa.int32()), lists.values, type=kind)


def _contents(rows: pa.Table) -> np.ndarray:
    """Hash the fields that all records of a pair must share, all but its answers and attributes: ``(rows,)`` uint64."""
    names = ("source", "split", "document_ids", "query", "options")
    hashes = np.empty(len(rows), np.uint64)
    place = 0
    for batch in rows.select(names).to_batches():
        for values in zip(*(batch.column(name).to_pylist() for name in names), strict=True):
            hashes[place] = int.from_bytes(blake2b(repr(values).encode(), digest_size=8).digest(), "little")
            place += 1
    return hashes


def first_of_equal(names: np.ndarray, contents: np.ndarray) -> np.ndarray:
    """Find for each record the first record of the same pair, in the order of the records: ``(n,)`` int64.

    ``names``, ``(n, 2)`` uint64, are hashes of pair ids; ``contents``, ``(n,)`` uint64, hashes of the fields that all
    records of a pair must have in common. A record whose contents differ from those of the first gets -1.
    """
    order = np.lexsort((names[:, 1], names[:, 0]))  # stable: equal names stay in the order of the records
    begins = first_of_key(names[order])
    first = np.empty(len(names), np.int64)
    first[order] = order[begins][np.cumsum(begins) - 1]
    return np.where(contents == contents[first], first, -1)


def document_groups(documents: Ragged) -> tuple[np.ndarray, np.ndarray]:
    """Divide the documents of n pairs, at least one, into groups, so that documents of one pair are in the same group.

    ``documents`` has n rows of int64, rows of the documents artefact; at least one each. The result is ``(m,)`` int64,
    the distinct documents, ascending, and ``(m,)`` int64, the group of each: the index of its least document.
    """
    documents = documents.compact()
    distinct, numbers = np.unique(documents.values, return_inverse=True)
    groups = np.arange(len(distinct))  # (m,) least document known so far to be in each document's group
    while True:
        least = np.minimum.reduceat(groups[numbers], documents.offsets[:-1])  # (n,) over the documents of each pair
        joined = groups.copy()
        for members in (numbers, groups[numbers]):  # the documents, and those that represent their groups so far
            np.minimum.at(joined, members, np.repeat(least, documents.lengths))
        joined = joined[joined]
        if (joined == groups).all():
            return distinct, groups
        groups = joined


def draw_splits(documents: Ragged, document_ids: Sequence[str], seed: int, validation: float, test: float) -> pa.Array:
    """Draw the split of each of n pairs from ``SPLITS``, so that no document is in two splits; ``(n,)`` strings.

    All pairs of a group that share documents have the same split, drawn by the least of the ids of its documents.
    ``documents`` is as for ``document_groups``; ``document_ids`` has the ids of all its values, in their order;
    ``validation`` and ``test`` are shares of documents.
    """
    documents = documents.compact()
    distinct, groups = document_groups(documents)
    _, places = np.unique(documents.values, return_index=True)
    names = np.array([document_ids[place] for place in places.tolist()], object)
    order = np.argsort(names, kind="stable")
    _, least = np.unique(groups[order], return_index=True)  # (groups,) place of each group's least id in the order
    draws = id_keys(make_key(seed, "split"), names[order][least].tolist())[:, 0] / 2.0**64  # (groups,)
    drawn = np.where(
        draws < test, SPLITS.index("test"), np.where(draws < test + validation, SPLITS.index("validation"), 0)
    )
    _, of_group = np.unique(groups, return_inverse=True)
    of_document = drawn[of_group]  # (m,)
    first = documents.values[documents.offsets[:-1]]
    return pa.array(np.array(SPLITS, object)[of_document[np.searchsorted(distinct, first)]], pa.string())


def in_several_splits(documents: Ragged, splits: np.ndarray) -> tuple[int, int]:
    """Count the distinct documents of n pairs, and those among them that are in several of the ``(n,)`` splits."""
    documents = documents.compact()
    numbers = np.unique(splits, return_inverse=True)[1]
    places = np.column_stack([documents.values, np.repeat(numbers, documents.lengths)])
    distinct, counts = np.unique(np.unique(places, axis=0)[:, 0], return_counts=True)
    return len(distinct), int((counts > 1).sum())
