"""Linking: laws of every policy, a plain implementation, near-duplicates, and options."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpora.errors import FarspanError
from corpora.linking.graph import Graph, clusters_of_shard
from corpora.linking.near_duplicates import edge_graph, near_duplicates
from corpora.linking.options import Linking
from corpora.linking.policies import link, shuffle_draws
from corpora.packing.options import Packing
from corpora.retrieval.knn import search
from corpora.retrieval.options import Search
from corpora.retrieval.vector_rows import VectorRows
from corpora.storage.ragged import Ragged
from tests.corpora.linking.plain_linking import NAN, Plain

packings = st.builds(
    Packing, sequence_length=st.integers(12, 60), room_per_sequence=st.just(2), room_per_document=st.integers(0, 2)
)
linkings = st.builds(
    Linking,
    policy=st.sampled_from(["nearest", "chain", "path"]),
    order=st.sampled_from(["seed", "chain", "shuffle"]),
    max_uses=st.integers(1, 3),
    min_similarity=st.sampled_from([None, 0.25, 0.5]),
    min_fill=st.sampled_from([0.0, 0.5, 0.9, 1.0]),
)


@dataclass(frozen=True)
class Cluster:
    """Documents to be linked."""

    graph: Graph
    lengths: np.ndarray
    keys: np.ndarray

    def link(self, packing: Packing, linking: Linking):
        return link(self.graph, self.lengths, self.keys, packing, linking)

    def plain(self, packing: Packing, linking: Linking) -> Plain:
        neighbours, near = self.graph.neighbours, np.flatnonzero(self.graph.near_duplicates)
        owners = np.repeat(np.arange(len(neighbours)), neighbours.lengths)
        pairs = {frozenset((int(owners[edge]), int(neighbours.values[edge]))) for edge in near}
        similarities = Ragged(self.graph.similarities, neighbours.offsets)
        plain = Plain(
            [list(zip(neighbours[i].tolist(), similarities[i].tolist(), strict=True)) for i in range(len(neighbours))],
            {pair for pair in pairs if len(pair) == 2},
            self.lengths.tolist(),
            [tuple(key) for key in self.keys.tolist()],
            packing.capacity,
            packing.room_per_document,
        )
        return plain.walk(linking) if linking.policy == "path" else plain.grow(linking)

    def renumbered(self, order: np.ndarray) -> "Cluster":
        """Document ``order[i]`` becomes number i; lists keep their order."""
        number, offsets = np.argsort(order), self.graph.neighbours.offsets
        edges = Ragged.from_rows([np.arange(*offsets[document : document + 2]) for document in order], np.int64)
        neighbours = Ragged(number[self.graph.neighbours.values[edges.values]].astype(np.int32), edges.offsets)
        graph = Graph(neighbours, self.graph.similarities[edges.values], self.graph.near_duplicates[edges.values])
        return Cluster(graph, self.lengths[order], self.keys[order])


@st.composite
def clusters(draw, max_documents: int = 14) -> "Cluster":
    """Few documents, among them empty and huge ones; few similarities, so that many are equal; lists with the document
    itself; lists one way and both ways; no, few or only near-duplicates."""
    n = draw(st.integers(0, max_documents))
    density, near = draw(st.sampled_from([0, 0.2, 0.5, 1])), draw(st.sampled_from([0, 0.1, 0.4, 1]))
    longest = draw(st.sampled_from([5, 30, 200]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    rows = [rng.permutation(np.flatnonzero(rng.random(n) < density)) for _ in range(n)]
    neighbours = Ragged.from_rows(rows, np.int32)
    symmetric = rng.integers(0, 6, (n, n)) / 5
    symmetric = np.maximum(symmetric, symmetric.T) if draw(st.booleans()) else symmetric
    owners = np.repeat(np.arange(n), neighbours.lengths)
    similarities = symmetric[owners, neighbours.values].astype(np.float32)
    by = np.lexsort((-similarities, owners))  # best first
    graph = Graph(
        Ragged(neighbours.values[by], neighbours.offsets), similarities[by], rng.random(len(neighbours.values)) < near
    )
    return Cluster(graph, rng.integers(0, longest + 1, n), rng.integers(0, 2**64, (n, 2), np.uint64))


def cluster_of(rows, lengths, near=()) -> "Cluster":
    """From lists of (neighbour, similarity); near-duplicates as pairs; keys ascend with the numbers."""
    graph = Graph(
        Ragged.from_rows([[document for document, _ in row] for row in rows], np.int32),
        np.array([similarity for row in rows for _, similarity in row], np.float32),
        np.array([(i, document) in near for i, row in enumerate(rows) for document, _ in row], bool),
    )
    return Cluster(graph, np.array(lengths), np.stack([np.arange(len(rows), dtype=np.uint64)] * 2, axis=1))


def pieces(linked) -> list[list[tuple[int, int, int, object]]]:
    """Rows of (document, offset, size, similarity), as the plain ones."""
    similarities = [NAN if np.isnan(value) else value for value in linked.similarities.tolist()]
    flat = list(
        zip(linked.parts.values.tolist(), linked.offsets.tolist(), linked.sizes.tolist(), similarities, strict=True)
    )
    edges = linked.parts.offsets.tolist()
    return [flat[edges[row] : edges[row + 1]] for row in range(len(linked.parts))]


@settings(max_examples=80)
@given(clusters(), packings, linkings)
def test_sequences_are_those_of_the_plain_policies(cluster, packing, linking):
    made, plain = cluster.link(packing, linking), cluster.plain(packing, linking)
    if linking.order == "shuffle":
        assert [sorted(map(str, row)) for row in pieces(made)] == [sorted(map(str, row)) for row in plain.rows]
    else:
        assert pieces(made) == plain.rows
    used = {document for row in plain.rows for document, *_ in row}
    assert set(made.repeated.tolist()) == plain.repeated(used)
    assert {frozenset(pair) for pair in made.refused.tolist()} == plain.refused


@given(clusters(), packings, linkings)
def test_every_document_is_used_whole_or_left_over(cluster, packing, linking):
    made = cluster.link(packing, linking)
    covered = [np.zeros(length, int) for length in cluster.lengths]
    for row in pieces(made):
        assert row
        for document, offset, size, _ in row:
            assert 0 < size <= cluster.lengths[document] - offset
            covered[document][offset : offset + size] += 1
    for document, counts in enumerate(covered):
        assert (counts == made.uses[document]).all()
        assert [made.uses[document] > 0, document in made.leftovers, document in made.repeated].count(True) == 1
        assert made.uses[document] <= (1 if linking.policy == "path" else linking.max_uses)
        assert made.uses[document] == 0 or cluster.lengths[document]
        if linking.policy == "path":
            assert made.uses[document] == (cluster.lengths[document] > 0)
    assert (np.diff(made.leftovers) > 0).all()
    assert (np.diff(made.repeated) > 0).all()


@given(clusters(), packings, linkings)
def test_sequences_are_full_enough_and_never_overfull(cluster, packing, linking):
    rows = pieces(cluster.link(packing, linking))
    filled = [sum(size + packing.room_per_document for _, _, size, _ in row) for row in rows]
    assert all(positions <= packing.capacity for positions in filled)
    if linking.policy == "path":  # no room for one more token, but at the end
        assert all(positions >= packing.capacity - packing.room_per_document for positions in filled[:-1])
    else:
        assert all(positions >= linking.min_fill * packing.capacity for positions in filled)


@given(clusters(), packings, linkings)
def test_near_duplicates_are_kept_apart(cluster, packing, linking):
    made, plain = cluster.link(packing, linking), cluster.plain(packing, linking)
    assert (made.refused[:, 0] < made.refused[:, 1]).all()
    for row in pieces(made):
        documents = [document for document, *_ in row]
        for place, (document, _, _, similarity) in enumerate(row):
            if linking.policy != "path":
                assert not any(plain.near(document, other) for other in documents if other != document)
            elif similarity is not NAN and linking.order != "shuffle":
                assert not plain.near(document, documents[place - 1])
    left = made.leftovers.tolist()
    assert not any(plain.near(one, other) for one in left for other in left if one != other)


@given(clusters(), packings, linkings)
def test_numbering_does_not_count(cluster, packing, linking):
    order = np.random.default_rng(len(cluster.lengths)).permutation(len(cluster.lengths))
    made, other = cluster.link(packing, linking), cluster.renumbered(order).link(packing, linking)
    assert pieces(made) == [[(order[document], *rest) for document, *rest in row] for row in pieces(other)]
    assert {frozenset(pair) for pair in made.refused.tolist()} == {frozenset(order[pair]) for pair in other.refused}


@settings(max_examples=60)
@given(st.integers(0, 2**32), st.integers(2, 11), linkings)
def test_rounded_similarities_decide_no_order(seed, k, linking):
    """Vectors that are not scaled: their products differ, and most are equal as float16."""
    rng, n = np.random.default_rng(seed), 12
    vectors = rng.integers(990, 1000, (n, 8)) / 64
    k = n - 1 if linking.policy == "path" else k  # outside a list, only rounded similarities are known
    options = replace(linking, order="chain", min_similarity=None)
    rows, products = search(VectorRows.from_array(vectors), Search(k=k)).ragged(0, n)
    lengths, keys = np.full(n, 5), rng.integers(0, 2**64, (n, 2), np.uint64)
    clusters = (
        Cluster(Graph(rows, values.astype(np.float32), np.zeros(len(values), bool)), lengths, keys)
        for values in (products.values.astype(np.float16), products.values)
    )
    rounded, exact = (cluster.link(THREE_OF_TEN, options) for cluster in clusters)
    assert len(np.unique((vectors @ vectors.T).astype(np.float16))) < 35
    assert len(np.unique(vectors @ vectors.T)) > 70
    assert documents(rounded) == documents(exact)


@given(clusters(), packings, linkings)
def test_graph_may_be_a_slice(cluster, packing, linking):
    graph, more = cluster.graph, 3
    values = [
        np.concatenate([np.full(more, -7, a.dtype), a, a[:1]]) for a in (graph.neighbours.values, graph.similarities)
    ]
    near = np.concatenate([np.ones(more, bool), graph.near_duplicates, np.ones(len(graph.similarities[:1]), bool)])
    sliced = Graph(Ragged(values[0], graph.neighbours.offsets + more), values[1], near)
    for array in (sliced.neighbours.values, sliced.similarities, near, cluster.lengths, cluster.keys):
        array.setflags(write=False)
    made, whole = replace(cluster, graph=sliced).link(packing, linking), cluster.link(packing, linking)
    assert pieces(made) == pieces(whole)
    assert np.array_equal(made.refused, whole.refused)


# Six documents. Of the others, 0 is nearest to 1, then 2, then 3; but 1 is nearest to 4, and 4 to 5.
SIX = [
    [(1, 0.9), (2, 0.8), (3, 0.7)],
    [(4, 0.95), (0, 0.9)],
    [(0, 0.8), (3, 0.6)],
    [(0, 0.7), (2, 0.6)],
    [(5, 0.97), (1, 0.95)],
    [(4, 0.97)],
]
THREE_OF_TEN = Packing(sequence_length=33, room_per_sequence=0, room_per_document=1)


def documents(linked):
    return [linked.parts[row].tolist() for row in range(len(linked.parts))]


def test_policies_on_six_documents():
    six = cluster_of(SIX, [10] * 6)
    made = six.link(THREE_OF_TEN, Linking(policy="nearest", max_uses=1))
    assert documents(made) == [[0, 1, 2], [4, 5]]  # 3 is alone: too empty
    assert made.leftovers.tolist() == [3]
    made = six.link(THREE_OF_TEN, Linking(policy="nearest", max_uses=2))
    assert documents(made) == [[0, 1, 2], [3, 0, 2], [4, 5, 1]]
    made = six.link(THREE_OF_TEN, Linking(policy="chain", max_uses=1, min_fill=0))
    assert documents(made) == [[0, 1, 4], [2, 3], [5]]
    np.testing.assert_array_equal(made.similarities, np.array([np.nan, 0.9, 0.95, np.nan, 0.6, np.nan], np.float32))
    made = six.link(THREE_OF_TEN, Linking(policy="path"))
    assert documents(made) == [[3, 2, 0], [1, 4, 5]]  # walked from 5, which has one neighbour, fewest
    np.testing.assert_array_equal(made.similarities, np.array([np.nan, 0.6, 0.8, np.nan, 0.95, 0.97], np.float32))


def test_copies_that_are_not_in_each_others_lists_are_a_family():
    rows = [[(1, 0.9), (3, 0.8), (4, 0.7)], [(2, 0.99)], [(3, 0.99)], [], []]  # 1, 2, 3: 1 and 3 know of 2 alone
    made = cluster_of(rows, [10] * 5, near={(1, 2), (2, 3)}).link(THREE_OF_TEN, Linking(policy="nearest"))
    assert documents(made) == [[0, 1, 4]]
    assert made.leftovers.tolist() == []
    assert made.repeated.tolist() == [2, 3]  # 1 stands for them
    assert made.refused.tolist() == [[1, 2], [1, 3], [2, 3]]  # 2 sought 3 in vain


def test_shuffle_depends_on_the_seed_and_moves_it():
    n, size = 400, 8
    groups = np.arange(n) // size
    rows = [[(int(j), 0.5) for j in np.flatnonzero(groups == groups[i]) if j != i] for i in range(n)]
    keys = np.random.default_rng(0).integers(0, 2**64, (n, 2), np.uint64)
    cluster = replace(cluster_of(rows, [10] * n), keys=keys)
    packing = Packing(sequence_length=size * 11, room_per_sequence=0)
    plain, shuffled = (documents(cluster.link(packing, Linking(order=order))) for order in ("seed", "shuffle"))
    assert [sorted(row) for row in shuffled] == [sorted(row) for row in plain]
    places = np.bincount([row.index(first[0]) for row, first in zip(shuffled, plain, strict=True)], minlength=size)
    assert places.max() < 20  # 50 sequences, 8 places for the seed: mean 6.25
    ways = {
        tuple(np.argsort([first.index(document) for document in row]))
        for row, first in zip(shuffled, plain, strict=True)
    }
    assert len(ways) > 45


def test_damaged_columns_are_refused():
    with pytest.raises(FarspanError, match=r"document 0 of 2 has the neighbours \[2\]"):
        cluster_of([[(2, 0.5)], []], [5, 5]).link(THREE_OF_TEN, Linking())
    with pytest.raises(FarspanError, match="6 documents have neighbours, 5 have lengths and 6 have keys"):
        cluster_of(SIX, [10] * 5).link(THREE_OF_TEN, Linking())


def test_draws_depend_on_the_first_key_of_a_row_alone():
    keys = np.arange(20, dtype=np.uint64).reshape(10, 2)
    found = shuffle_draws(keys, np.array([0, 6, 10]))
    first = np.random.Philox(key=[0, 1]).random_raw(6)
    second = np.random.Philox(key=[12, 13]).random_raw(4)
    assert found.tolist() == [*first.tolist(), *second.tolist()]


# Near-duplicates and options of linking.
def near(batches, **options) -> list[list[bool]]:
    linking = Linking(**options)
    return [edge_graph(cluster, linking).near_duplicates.tolist() for cluster in clusters_of_shard(batches)]


def test_words_and_vectors_make_near_duplicates(batches):
    assert near(batches, max_jaccard=None) == [[False] * 3, [], [False] * 2]
    assert near(batches, max_jaccard=0.8) == [[False, True, False], [], [False] * 2]
    assert near(batches, max_jaccard=None, max_cosine=0.8) == [[True, False, True], [], [False] * 2]
    assert near(batches, max_jaccard=None, max_cosine=0.4) == [[True] * 3, [], [True] * 2]


def test_pairs_have_the_similarities_that_either_list_gives(batches):
    cluster = next(clusters_of_shard(batches))
    graph = edge_graph(cluster, Linking(max_jaccard=0.8))
    table = near_duplicates(cluster, graph, np.array([[0, 2], [1, 2]])).to_pylist()
    assert [tuple(row.values())[:2] for row in table] == [("made:0", "made:2"), ("made:1", "made:2")]
    assert table[0]["similarity"] == pytest.approx(0.5)
    assert table[0]["jaccard"] == pytest.approx(0.85, abs=1e-3)
    assert (table[1]["similarity"], table[1]["jaccard"]) == (None, None)  # neither lists the other


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_uses": 0}, "--max-uses 0: must be at least 1"),
        ({"min_similarity": float("nan")}, "--min-similarity nan"),
        ({"max_cosine": 1.5}, "--max-cosine 1.5"),
        ({"max_jaccard": -0.1}, "--max-jaccard -0.1"),
        ({"min_fill": float("nan")}, "--min-fill nan"),
        ({"min_fill": 1.1}, "--min-fill 1.1"),
    ],
)
def test_options_are_checked(options, message):
    with pytest.raises(FarspanError, match=message):
        Linking(**options)


def test_a_path_ignores_what_it_has_no_use_for():
    path = Linking(policy="path", max_uses=5, min_fill=0.9)
    assert path.resolved == Linking(policy="path", order="chain", max_uses=1, min_fill=0.0)
    assert Linking(policy="path", order="shuffle").resolved.order == "shuffle"
    nearest = Linking(policy="nearest", max_uses=5)
    assert nearest.resolved is nearest
