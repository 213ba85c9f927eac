"""Pairs, predictions and vectors: rows and lengths."""

from __future__ import annotations

import pickle

import numpy as np
import pyarrow as pa
import pytest

from corpora.errors import FarspanError
from corpora.schemas.documents import open_documents
from corpora.schemas.pair_lengths import PairLengths
from corpora.schemas.pairs import open_pairs, pair_key
from corpora.schemas.predictions import open_predictions
from corpora.schemas.vectors import clusters_schema, neighbours_schema, vector_column, vector_rows, vectors_schema
from corpora.storage.shards import read_shard, write_shard
from tests.artefacts import all_rows, make_documents, make_pairs, make_predictions


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("pairs")
    documents = make_documents(str(root / "documents"), shards=2, documents=8)
    return documents, make_pairs(str(root / "pairs"), documents, documents_per_pair=2)


def test_a_batch_has_each_document_once(folders):
    documents, pairs = open_documents(folders[0]), open_pairs(folders[1])
    rows = [9, 1, 9, 17]  # pairs 1, 9 and 17 are about the same documents
    batch, stored = pairs.take(rows), all_rows(folders[1], "farspan.pairs")
    assert len(batch.document_tokens) == 2
    tokens = documents.take(range(len(documents))).column("tokens").to_pylist()
    for place, row in enumerate(rows):
        about = [batch.document_tokens[document].tolist() for document in batch.pair_documents[place]]
        assert about == [tokens[document] for document in stored[row]["document_rows"]]
        assert batch.queries[place].tolist() == stored[row]["query"]
        first, last = batch.target_offsets[place : place + 2]
        targets = [batch.targets[target].tolist() for target in range(first, last)]
        assert targets == stored[row]["targets"]
        assert batch.keys[place].tobytes() == pair_key(f"pair-{row}")
    assert batch.target_offsets[-1] == len(batch.targets)


def test_splits_and_targets(folders):
    pairs = open_pairs(folders[1])
    assert pairs.rows_of("validation").tolist() == list(range(2, 24, 3))
    assert pairs.target_counts.tolist() == [row % 2 + 1 for row in range(24)]
    with pytest.raises(FarspanError, match=r"no pair is in split 'test'; its splits: train, validation"):
        pairs.rows_of("test")


def test_pickled_pairs_are_opened_again(folders):
    pairs = open_pairs(folders[1])
    again = pickle.loads(pickle.dumps(pairs))
    assert np.array_equal(again.take([3]).queries.values, pairs.take([3]).queries.values)


def test_pairs_about_other_documents_are_refused(folders, tmp_path):
    other = make_documents(str(tmp_path / "other"), seed=1)
    with pytest.raises(FarspanError, match="are about other documents than those in"):
        open_pairs(folders[1], documents=other)


def test_lengths_are_those_of_the_stored_rows(folders):
    lengths = PairLengths.of(open_pairs(folders[1]))
    documents = [len(row["tokens"]) for row in all_rows(folders[0], "farspan.documents")]
    rows = all_rows(folders[1], "farspan.pairs")
    assert lengths.documents.tolist() == documents
    assert lengths.queries.tolist() == [len(row["query"]) for row in rows]
    targets = [[len(target) for target in row["targets"]] for row in rows]
    assert lengths.targets.tolist() == [length for row in targets for length in row]
    assert lengths.longest_targets.tolist() == [max(row, default=0) for row in targets]

    pairs = np.array([9, 1, 9, 17])  # any order, also twice
    expected = [[documents[document] for document in rows[pair]["document_rows"]] for pair in pairs]
    of_pairs = lengths.documents_of(pairs)
    assert [of_pairs[place].tolist() for place in range(len(pairs))] == expected
    last = np.array([len(targets[pair]) - 1 for pair in pairs])
    assert lengths.targets_of(pairs, last).tolist() == [targets[pair][-1] for pair in pairs]
    assert lengths.targets_of(pairs, None).tolist() == [max(targets[pair]) for pair in pairs]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Pairs, others about the same documents, and predictions for the first."""
    folder = tmp_path_factory.mktemp("predictions")
    documents = make_documents(str(folder / "documents"), shards=1)
    pairs = make_pairs(str(folder / "pairs"), documents)
    others = make_pairs(str(folder / "others"), documents, seed=1)
    return pairs, others, make_predictions(str(folder / "predictions"), pairs)


def test_predictions_follow_the_pairs_of_their_split(made):
    pairs, _, folder = made
    predictions, known = pickle.loads(pickle.dumps(open_predictions(folder, verify=True))), open_pairs(pairs)
    rows = known.table(known.rows_of("validation")).to_pydict()
    assert predictions.split == "validation"
    assert predictions.pair_ids == rows["pair_id"]
    assert predictions.texts == [references[-1] for references in rows["references"]]
    assert predictions.scores.tolist() == [-0.5] * len(predictions)
    assert predictions.open_pairs().folder == pairs


def test_predictions_of_other_pairs_are_refused(made):
    _, others, folder = made
    with pytest.raises(
        FarspanError, match=f"{folder}: its predictions answer other pairs than those in {others}; give"
    ):
        open_predictions(folder).open_pairs(others)


def test_pairs_are_no_predictions(made):
    with pytest.raises(FarspanError, match=r"is 'farspan.pairs' where 'farspan.predictions' is needed"):
        open_predictions(made[0])


@pytest.mark.parametrize("cuts", [[50], [1, 9, 40], [16, 16, 18]])
def test_a_shard_has_the_same_bytes_however_its_rows_arrived(tmp_path, cuts):
    vectors = np.random.default_rng(0).normal(size=(50, 7)).astype(np.float16)
    schema = vectors_schema(7)
    everything = pa.record_batch(
        [
            pa.array([f"d:{row}" for row in range(50)]),
            pa.array(np.arange(50)),
            pa.array(np.arange(50, dtype=np.int32)),
            pa.array([[row, row + 1] for row in range(50)], pa.list_(pa.uint32())),
            vector_column(vectors),
        ],
        schema=schema,
    )
    digests = set()
    for name, parts in {"once": [50], "cut": cuts}.items():
        with write_shard(str(tmp_path / name), schema, 16) as (writer, info):
            start = 0
            for size in parts:
                writer.write(everything.slice(start, size))
                start += size
        digests.add(info[0].sha256)
    assert len(digests) == 1
    batches = list(read_shard(str(tmp_path / "cut")))
    assert [len(batch) for batch in batches] == [16, 16, 16, 2]
    assert np.concatenate([vector_rows(batch.column("vector")) for batch in batches]).tobytes() == vectors.tobytes()


def test_rows_of_a_slice_are_its_own():
    vectors = np.arange(12, dtype=np.float16).reshape(4, 3)
    assert vector_rows(vector_column(vectors).slice(1, 2)).tolist() == vectors[1:3].tolist()
    assert vector_rows(vector_column(vectors[:0])).shape == (0, 3)


def test_clusters_are_vectors_with_a_cluster():
    vectors, clusters = vectors_schema(4), clusters_schema(4)
    assert [field for field in clusters if field.name != "cluster_id"] == list(vectors)
    assert [field.name for field in neighbours_schema()][:4] == [field.name for field in clusters][:4]
