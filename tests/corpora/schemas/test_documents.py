"""Documents, corpora, pairs, predictions and vectors: rows, lengths, use of documents."""

import os
import pickle
from dataclasses import asdict, fields, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpora.errors import FarspanError
from corpora.schemas.corpus import Corpus, DocumentUse
from corpora.schemas.documents import documents_schema, has_titles, open_documents
from corpora.schemas.pairs import PairLengths, open_pairs, pair_key
from corpora.schemas.predictions import open_predictions
from corpora.schemas.sequences import NO_CLUSTER, SequenceBatch, bytes_array, corpus_schema, fixed_bytes, token_list
from corpora.schemas.vectors import clusters_schema, neighbours_schema, vector_column, vector_rows, vectors_schema
from corpora.storage.manifest import Manifest
from corpora.storage.manifest_file import read_manifest, write_manifest
from corpora.storage.ragged import Ragged
from corpora.verify.artefact import verify
from tests.artefacts import all_rows, make_corpus, make_documents, make_pairs, make_predictions
from tests.factories import make_sequences, sequence_batches


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return Path(make_documents(str(tmp_path_factory.mktemp("documents") / "made")))


def test_rows_are_those_of_the_shards_in_the_order_asked(folder: Path):
    documents, rows = open_documents(folder), all_rows(folder)
    assert len(documents) == len(rows)
    asked = [len(rows) - 1, 0, 7, 0]
    taken = pickle.loads(pickle.dumps(documents)).take(asked)
    assert taken.schema == documents_schema(documents.manifest.tokenizer["vocab_size"])
    assert taken.to_pylist() == [rows[row] for row in asked]
    assert len(documents.take([])) == 0


def test_rows_outside_and_other_artefacts_are_refused(folder: Path, tmp_path: Path):
    with pytest.raises(IndexError):
        open_documents(folder).take([-1])
    with pytest.raises(FarspanError, match=r"farspan\.corpus"):
        open_documents(make_corpus(str(tmp_path / "corpus")))


def test_titles_are_a_column_of_documents_read_with_them(folder: Path, tmp_path: Path):
    titled = open_documents(make_documents(str(tmp_path / "titled"), titles=("One", None, "Three")))
    assert [titled.title(row) for row in (0, 1, 2, len(titled) - 1)] == ["One", None, "Three", "One"]
    assert titled.take([0, 2]).column("title").to_pylist() == ["One", "Three"]
    without = open_documents(folder)
    assert without.title(0) is None
    assert "title" not in without.take([0]).schema.names
    with pytest.raises(IndexError):
        titled.title(len(titled))


@pytest.mark.parametrize("read", [None, [], "x", {"a": None}, {"a": {}}, {"a": {"title_field": None}}])
def test_without_a_field_of_titles_there_are_none(folder: Path, read):
    manifest = open_documents(folder).manifest
    assert not has_titles(replace(manifest, config={**manifest.config, "read": read}))
    assert has_titles(replace(manifest, config={"read": {"a": {}, "b": {"title_field": "name"}}}))


def test_any_row_at_any_time(corpus):
    reader = Corpus(corpus)
    rows = np.random.default_rng(0).permutation(len(reader))
    batch = reader.take(rows)
    straight = reader.take(np.arange(len(reader)))
    for place, row in enumerate(rows):
        assert np.array_equal(batch.tokens[place], straight.tokens[row])
        assert np.array_equal(batch.tokens[place], reader.tokens(row))
        assert batch.sequence_id(place) == straight.sequence_id(row)
        assert batch.document_ids[place] == straight.document_ids[row]


@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.uint16])
def test_gathering_pads_and_cuts(corpus, dtype):
    reader = Corpus(corpus)
    rows = np.array([5, 0, 5, len(reader) - 1])
    out = np.full((4, 60), 9, dtype)
    lengths = reader.gather_tokens(rows, out)
    for place, row in enumerate(rows):
        expected = reader.tokens(row)[:60]
        assert lengths[place] == len(expected)
        assert np.array_equal(out[place, : lengths[place]], expected)
        assert (out[place, lengths[place] :] == 9).all()
    assert np.array_equal(reader.gather_tokens(rows, out, pad=7), lengths)
    for place, length in enumerate(lengths):
        assert np.array_equal(out[place, :length], reader.tokens(rows[place])[:length])
        assert (out[place, length:] == 7).all()


def test_rows_outside_are_refused(corpus):
    reader = Corpus(corpus)
    with pytest.raises(IndexError, match=str(len(reader))):
        reader.take(np.array([len(reader)]))
    with pytest.raises(IndexError):
        reader.gather_tokens(np.array([-1]), np.zeros((1, 5), np.int64))


@pytest.mark.parametrize(("dtype", "pad"), [(np.int8, 0), (np.uint16, -1), (np.int32, 2**31)])
def test_ids_and_padding_are_never_cut_to_a_smaller_type(corpus, dtype, pad):
    with pytest.raises(FarspanError, match=f"{np.dtype(dtype)} cannot hold ids .* and pad {pad}"):
        Corpus(corpus).gather_tokens(np.arange(2), np.zeros((2, 5), dtype), pad)


def test_a_reader_can_go_to_another_process_and_a_row_is_a_view_of_the_file(corpus):
    there = pickle.loads(pickle.dumps(Corpus(corpus)))
    assert np.array_equal(there.tokens(1), Corpus(corpus).tokens(1))
    assert not Corpus(corpus).tokens(3).flags.owndata


def manifest(**config) -> Manifest:
    return Manifest("farspan.corpus", config, 0, 64, {})


def test_a_statement_is_read_back():
    use = DocumentUse(truncated=True, overlap=3, max_uses=None, one_shard=False, left_out="too long")
    assert DocumentUse.of(manifest(builder="fifth", document_use=asdict(use))) == use


def test_missing_and_malformed_statements_are_refused():
    with pytest.raises(FarspanError, match=r"config\.document_use, .* builder 'random' uses documents, is missing"):
        DocumentUse.of(manifest(builder="random"))
    for stated in (5, {}, {**asdict(DocumentUse()), "overlap": -1}, {**asdict(DocumentUse()), "x": 1}):
        with pytest.raises(FarspanError, match=r"config\.document_use"):
            DocumentUse.of(manifest(builder="random", document_use=stated))


def restate(folder: str, builder: str, use: DocumentUse | None, filtered: int = 0) -> None:
    old = read_manifest(folder)
    stated = {} if use is None else {"document_use": asdict(use)}
    config = {name: value for name, value in old.config.items() if name != "document_use"}
    config |= {"builder": builder, **stated}
    counts = {
        name: {**count, "filtered": filtered, "read": count["written"] + filtered} for name, count in old.counts.items()
    }
    write_manifest(folder, replace(old, config=config, counts=counts))


def test_verification_goes_by_the_statement(tmp_path):
    folder = make_corpus(str(tmp_path / "corpus"))
    restate(folder, "fifth", DocumentUse())
    assert verify(folder) == []
    restate(folder, "fifth", DocumentUse(max_uses=0))
    assert "a document is used 1 times, max_uses is 0" in verify(folder)
    restate(folder, "fifth", DocumentUse(one_shard=False), filtered=2)
    assert verify(folder) == ["manifest.json: 2 documents are left out, though document_use.left_out is null"]
    restate(folder, "fifth", DocumentUse(left_out="too short"))
    assert verify(folder) == []
    restate(folder, "fifth", None)
    with pytest.raises(FarspanError, match=rf"{os.path.join(folder, 'manifest.json')}: config\.document_use, the"):
        verify(folder)


def plain(batch: SequenceBatch) -> list[list]:
    """Every row as plain values, column after column."""

    def row(column, i):
        if isinstance(column, pa.Array):
            return column[i].as_py()
        return column[i].tolist()

    return [[row(getattr(batch, field.name), i) for field in fields(batch)] for i in range(len(batch))]


@given(sequence_batches(), st.data())
def test_arrow_round_trip(batch, data):
    record_batch = batch.to_arrow(corpus_schema(32_000 if batch.tokens.values.dtype == np.uint16 else 100_000))
    record_batch.validate(full=True)
    assert plain(SequenceBatch.from_arrow(record_batch)) == plain(batch)
    start = data.draw(st.integers(0, len(batch)))
    assert plain(SequenceBatch.from_arrow(record_batch.slice(start))) == plain(batch)[start:]


def test_clusters_are_null_where_there_are_none():
    batch = make_sequences([3, 3, 3], clusters=True)
    assert batch.to_arrow(corpus_schema(32_000)).column("cluster_id").to_pylist() == [0, None, 2]
    assert SequenceBatch.from_arrow(batch.to_arrow(corpus_schema(32_000))).cluster_ids[1] == NO_CLUSTER


@given(sequence_batches(min_rows=1), st.data())
def test_take_and_concatenate(batch, data):
    picks = data.draw(st.lists(st.integers(0, len(batch) - 1), max_size=6))
    rows = plain(batch)
    assert plain(batch.take(picks)) == [rows[pick] for pick in picks]
    assert plain(SequenceBatch.concatenate([batch, batch.take(picks)])) == rows + [rows[pick] for pick in picks]


@pytest.mark.parametrize(("vocab_size", "width"), [(65_535, pa.uint16()), (65_536, pa.int32()), (250_000, pa.int32())])
def test_token_width_follows_the_vocabulary(vocab_size, width):
    assert token_list(vocab_size) == pa.large_list(width)


def test_fixed_bytes_of_slices():
    rows = np.arange(48, dtype=np.uint8).reshape(3, 16)
    array = bytes_array(rows)
    assert np.array_equal(fixed_bytes(array), rows)
    assert np.array_equal(fixed_bytes(array.slice(1, 1)), rows[1:2])
    assert fixed_bytes(array.slice(3)).shape == (0, 16)
    batch = make_sequences([2, 2])
    assert batch.sequence_id(1) == batch.sequence_ids[1].tobytes()
    batch = replace(batch, sequence_ids=np.array([[7] * 16, [0] * 16], np.uint8))  # zeros, which strings would lose
    assert batch.ids() == [batch.sequence_id(row) for row in range(len(batch))]


def test_tokens_are_views_of_the_arrow_buffer():
    record_batch = make_sequences([5, 6]).to_arrow(corpus_schema(32_000))
    batch = SequenceBatch.from_arrow(record_batch)
    assert batch.tokens.values.ctypes.data == record_batch.column("tokens").values.buffers()[1].address
    assert isinstance(batch.tokens, Ragged)


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


def test_splits_and_targets_also_of_pickled_pairs(folders):
    pairs = pickle.loads(pickle.dumps(open_pairs(folders[1])))
    assert pairs.rows_of("validation").tolist() == list(range(2, 24, 3))
    assert pairs.target_counts.tolist() == [row % 2 + 1 for row in range(24)]
    assert np.array_equal(pairs.take([3]).queries.values, open_pairs(folders[1]).take([3]).queries.values)
    with pytest.raises(FarspanError, match=r"no pair is in split 'test'; its splits: train, validation"):
        pairs.rows_of("test")


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
    pairs, others, folder = made
    predictions, known = pickle.loads(pickle.dumps(open_predictions(folder, verify=True))), open_pairs(pairs)
    rows = known.table(known.rows_of("validation")).to_pydict()
    assert predictions.split == "validation"
    assert predictions.pair_ids == rows["pair_id"]
    assert predictions.texts == [references[-1] for references in rows["references"]]
    assert predictions.scores.tolist() == [-0.5] * len(predictions)
    assert predictions.open_pairs().folder == pairs
    with pytest.raises(
        FarspanError, match=f"{folder}: its predictions answer other pairs than those in {others}; give"
    ):
        predictions.open_pairs(others)


def test_rows_of_a_slice_are_its_own():
    vectors = np.arange(12, dtype=np.float16).reshape(4, 3)
    assert vector_rows(vector_column(vectors).slice(1, 2)).tolist() == vectors[1:3].tolist()
    assert vector_rows(vector_column(vectors[:0])).shape == (0, 3)


def test_clusters_are_vectors_with_a_cluster():
    vectors, clusters = vectors_schema(4), clusters_schema(4)
    assert [field for field in clusters if field.name != "cluster_id"] == list(vectors)
    assert [field.name for field in neighbours_schema()][:4] == [field.name for field in clusters][:4]
