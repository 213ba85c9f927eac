"""Rows of related documents, and groups of neighbours, against plain algorithms."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from corpora.keyed import id_keys, make_key
from corpora.packing.options import Packing, RelatedRows
from corpora.packing.related import arrange, form_groups, water_fill
from corpora.storage.ragged import Ragged


@given(st.lists(st.integers(0, 50), max_size=12), st.integers(0, 200))
def test_water_filling_never_exceeds_and_never_wastes(wants, room):
    given_ = water_fill(np.array(wants, np.int64), room)
    assert given_.sum() == min(sum(wants), room)
    assert (given_ <= wants).all()
    cut = given_ < wants
    if cut.any():  # whoever wants more has as much as anybody, but for what cannot be divided
        assert given_[cut].max() - given_[cut].min() <= 1
        assert given_.max(where=~cut, initial=0) <= given_[cut].min() + 1
        assert (np.diff(given_[cut]) <= 0).all()


@st.composite
def related(draw):
    """Documents (lengths and sentence starts) and clusters of them; some documents are in none."""
    sizes = draw(st.lists(st.integers(0, 7), max_size=6))
    count = sum(sizes) + draw(st.integers(0, 3))
    lengths = np.array(draw(st.lists(st.integers(1, 60), min_size=count, max_size=count)), np.int64)
    starts = Ragged.from_rows(
        [sorted({0, *draw(st.lists(st.integers(0, length - 1), max_size=6))}) for length in lengths], np.int32
    )
    order = np.array(draw(st.permutations(range(count))), np.int64)
    return Ragged.from_lengths(order[: sum(sizes)], sizes), lengths, starts


packings = st.builds(
    Packing,
    sequence_length=st.integers(30, 80),
    room_per_sequence=st.integers(0, 2),
    room_per_document=st.integers(0, 2),
)


@st.composite
def row_options(draw):
    least = draw(st.integers(1, 3))
    return RelatedRows(
        budget=draw(st.sampled_from(["shared", "equal"])),
        order=draw(st.sampled_from(["shuffle", "given"])),
        min_documents=least,
        max_documents=draw(st.integers(least, 6)),
    )


def keys_of(count):
    return id_keys(make_key(0, "clusters"), [f"d{i}" for i in range(count)])


def first_sentence(lengths, starts, document):
    own = starts[document]
    return own[1] if len(own) > 1 else lengths[document]


def budgets(lengths, chosen, packing, options):
    if options.budget == "equal":
        return np.full(len(chosen), packing.capacity // len(chosen) - packing.room_per_document)
    return water_fill(lengths[chosen], packing.capacity - packing.room_per_document * len(chosen))


def slowly(clusters, lengths, starts, keys, packing, options):
    """Rows as (cluster, [(document, size)]), written down plainly."""
    rows = []
    for cluster in range(len(clusters)):
        members = clusters[cluster].tolist()
        if options.order == "shuffle":
            members.sort(key=lambda document: tuple(keys[document]))
        pieces = -(-len(members) // options.max_documents)
        for chosen in np.array_split(members, pieces) if members else []:
            chosen = chosen.tolist()
            while len(chosen) >= options.min_documents and chosen:
                room = budgets(lengths, chosen, packing, options)
                firsts = [first_sentence(lengths, starts, document) for document in chosen]
                over = [i for i in range(len(chosen)) if firsts[i] > room[i]]
                if over:
                    del chosen[max(over, key=lambda i: (firsts[i], i))]
                    continue
                row = []
                for document, limit in zip(chosen, room, strict=True):
                    ends = [*starts[document][1:].tolist(), int(lengths[document])]
                    row.append((document, max(end for end in ends if end <= limit)))
                rows.append((cluster, row))
                break
    return rows


@given(related(), packings, row_options())
def test_rows_are_those_of_the_plain_algorithm_and_fit(made, packing, options):
    clusters, lengths, starts = made
    keys = keys_of(len(lengths))
    cuts, cluster_of_row = arrange(clusters, lengths, starts, keys, packing, options)
    rows = []
    for cluster, first, last in zip(cluster_of_row, cuts.row_offsets[:-1], cuts.row_offsets[1:], strict=True):
        row = slice(first, last)
        rows.append((cluster, list(zip(cuts.documents[row], cuts.sizes[row], strict=True))))
        assert cuts.sizes[row].sum() + packing.room_per_document * (last - first) <= packing.capacity
        assert options.min_documents <= last - first <= options.max_documents
    assert rows == slowly(clusters, lengths, starts, keys, packing, options)
    assert not cuts.offsets.any()
    assert len(np.unique(cuts.documents)) == len(cuts.documents)


def test_small_clusters_are_left_out_and_large_ones_become_even_rows_by_default():
    packing = Packing(sequence_length=4 * 128 + 2, room_per_sequence=2, room_per_document=1)
    clusters, starts = Ragged.from_rows([[0], [], range(1, 13)], np.int64), Ragged.from_rows([[0]] * 13, np.int32)
    cuts, numbers = arrange(clusters, np.full(13, 5), starts, keys_of(13), packing, RelatedRows(order="given"))
    assert cuts.documents.tolist() == list(range(1, 13))
    assert (cuts.row_offsets.tolist(), numbers.tolist()) == ([0, 4, 8, 12], [2, 2, 2])


@st.composite
def graphs(draw):
    count = draw(st.integers(1, 12))
    rows = [
        draw(st.lists(st.integers(0, count - 1).filter(own.__ne__), max_size=6, unique=True)) for own in range(count)
    ]
    similarities = [sorted(draw(st.lists(st.floats(0, 1), min_size=len(row), max_size=len(row))))[::-1] for row in rows]
    return Ragged.from_rows(rows, np.int32), np.array([one for row in similarities for one in row], np.float32)


sizes = st.integers(1, 5).flatmap(lambda least: st.tuples(st.just(least), st.integers(least, 6)))


@given(graphs(), sizes, st.sampled_from([-np.inf, 0.5]))
def test_groups_are_seeds_with_their_nearest_free_neighbours(graph, sizes, floor):
    neighbours, similarities = graph
    least, most = sizes
    keys = keys_of(len(neighbours))
    made = form_groups(neighbours, similarities, keys, least, most, floor)
    found = [made[row].tolist() for row in range(len(made))]
    near = Ragged(similarities, neighbours.offsets)
    free = set(range(len(neighbours)))

    def group_of(seed):
        pairs = zip(neighbours[seed].tolist(), near[seed], strict=True)
        return [seed, *(other for other, value in pairs if other in free and value >= np.float32(floor))][:most]

    expected = []
    seeds = sorted(free, key=lambda document: tuple(keys[document]))
    for seed in seeds:
        if seed in free and len(group := group_of(seed)) >= max(least, 2):
            expected.append(group)
            free -= set(group)
    assert all(len(group_of(seed)) < max(least, 2) for seed in free)  # nothing more could be made of the others
    expected += [[seed] for seed in seeds if least == 1 and seed in free]
    assert found == expected


def test_a_group_that_stays_too_small_leaves_its_documents_to_later_seeds():
    first, *others = sorted(range(4), key=lambda document: tuple(keys_of(4)[document]))
    rows = [[other for other in range(4) if other != own] if own != first else others[:1] for own in range(4)]
    near = np.concatenate([np.linspace(1, 0.5, len(row)) for row in rows])
    found = form_groups(Ragged.from_rows(rows, np.int32), near, keys_of(4), 4, 4)
    assert len(found) == 1
    assert sorted(found[0].tolist()) == [0, 1, 2, 3]
    assert found[0][0] == others[0]


def test_groups_do_not_depend_on_how_documents_are_numbered():
    rng = np.random.default_rng(0)
    count = 40
    rows = [rng.permutation(np.delete(np.arange(count), own))[:5] for own in range(count)]
    near = np.sort(rng.random((count, 5)).astype(np.float32))[:, ::-1]
    keys = keys_of(count)
    found = form_groups(Ragged.from_rows(rows, np.int32), near.ravel(), keys, 3, 4)
    names = rng.permutation(count)  # new number -> old number
    number = np.argsort(names)
    turned = form_groups(
        Ragged.from_rows([number[rows[old]] for old in names], np.int32), near[names].ravel(), keys[names], 3, 4
    )
    assert [names[turned[row]].tolist() for row in range(len(turned))] == [
        found[row].tolist() for row in range(len(found))
    ]
