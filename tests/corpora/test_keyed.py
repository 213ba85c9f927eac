"""Keyed draws: numpy's own Philox, bit for bit, and keys that keep everything apart."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from corpora.keyed import id_keys, make_key, philox_blocks, select_share

WORDS = st.integers(0, 2**64 - 1)


@given(WORDS, WORDS, st.integers(1, 2**63), st.integers(0, 9))
def test_blocks_are_numpys(key0, key1, first, count):
    blocks = np.empty((count, 4), np.uint64)
    philox_blocks(np.uint64(key0), np.uint64(key1), np.uint64(first), blocks)
    numpys = np.random.Philox(key=np.array([key0, key1], np.uint64), counter=[first - 1, 0, 0, 0])
    assert np.array_equal(blocks.ravel(), numpys.random_raw(4 * count))


def test_known_answer():
    # The vector of zeros from the Random123 distribution, philox4x64-10.
    block = np.empty((1, 4), np.uint64)
    philox_blocks(np.uint64(0), np.uint64(0), np.uint64(0), block)
    assert [f"{word:016x}" for word in block[0].tolist()] == [
        "16554d9eca36314c",
        "db20fe9d672d0fdc",
        "d7e772cee186176b",
        "7e68b68aec7ba23b",
    ]


def test_keys_differ_by_seed_purpose_configuration_and_id():
    keys = {make_key(seed, purpose, {"a": a}) for seed in range(5) for purpose in ("x", "y") for a in range(5)}
    assert len(keys) == 50
    assert all(len(key) == 16 for key in keys)
    words = np.concatenate([id_keys(key, [bytes([i]) for i in range(20)]) for key in sorted(keys)])
    assert words.shape == (1000, 2)
    assert len(np.unique(words)) == 2000


def test_configuration_counts_by_content():
    assert make_key(1, "mask", {"a": 1, "b": [2]}) == make_key(1, "mask", {"b": [2], "a": 1})
    assert make_key(1, "mask") == make_key(1, "mask", {})


def test_an_ids_key_depends_on_nothing_but_the_id():
    key = make_key(0, "test")
    assert np.array_equal(id_keys(key, ["a", "b", "c"])[1], id_keys(key, ["b"])[0])
    assert np.array_equal(id_keys(key, [b"b"]), id_keys(key, ["b"]))
    assert id_keys(key, []).shape == (0, 2)


def test_a_share_of_ids_is_drawn_whatever_their_order():
    key, ids = make_key(0, "test"), [f"{number}" for number in range(20_000)]
    chosen = select_share(key, ids, 0.1)
    assert 1_800 < chosen.sum() < 2_200
    assert np.array_equal(select_share(key, ids[::-1], 0.1), chosen[::-1])
    assert (chosen <= select_share(key, ids, 0.2)).all()
    assert select_share(key, ids, 1.0).all()
    assert select_share(key, ids, 7.5).all()
