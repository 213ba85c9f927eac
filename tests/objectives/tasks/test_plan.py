"""The division of positions among query, documents and target: limits that hold, and nothing lost that fits."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from corpora.storage.ragged import Ragged
from objectives.tasks.plan import Frame, plan
from objectives.tasks.protocol import NO_TARGET

FRAME = Frame(
    source_length=60,
    target_length=20,
    block=60,
    before_source=1,
    before_target=0,
    middle=2,
    separator=1,
    end=1,
    query="source",
    query_tokens=8,
    separator_last=False,
    shares=False,
    handed_on=False,
    tails=False,
)

pairs = st.lists(
    st.tuples(st.integers(0, 12), st.lists(st.integers(0, 50), max_size=5), st.integers(-1, 40)), min_size=1, max_size=4
)


def planned(frame: Frame, pairs: list):
    queries, documents, targets = zip(*pairs, strict=True)
    targets = [NO_TARGET if size < 0 else size for size in targets]
    return plan(frame, np.array(queries, np.int64), Ragged.from_rows(documents, np.int64), np.array(targets, np.int64))


@given(pairs, st.sampled_from(["source", "target", None]), st.booleans(), st.booleans(), st.booleans(), st.booleans())
def test_limits_hold_and_what_is_cut_is_counted(pairs, query, shares, handed_on, tails, last):
    frame = replace(
        FRAME, query=query, shares=shares, handed_on=shares and handed_on, tails=tails, separator_last=last, block=30
    )
    found = planned(frame, pairs)
    assert (found.lengths.source <= frame.source_length).all()
    assert (found.lengths.target <= frame.target_length).all()
    for row, (question, documents, target) in enumerate(pairs):
        shown = min(question, 8) if query else 0
        assert found.queries[row] == shown
        assert found.lengths.cut.query[row] == (question - shown if query else 0)
        assert 0 <= found.lengths.cut.documents[row] <= sum(documents)
        if target < 0:
            assert found.lengths.target[row] == found.lengths.prompt[row]
        else:
            asked = shown + 2 if query == "target" and shown else 0
            assert found.lengths.target[row] == min(asked + target + 1, frame.target_length)


@given(pairs, st.booleans(), st.booleans())
def test_what_fits_is_shown_whole(pairs, shares, tails):
    wide = replace(
        FRAME, source_length=1000, block=1000, target_length=100, shares=shares, handed_on=shares, tails=tails
    )
    found = planned(wide, pairs)
    assert not np.concatenate([found.lengths.cut.documents, found.lengths.cut.target]).any()
    for row, (question, documents, _) in enumerate(pairs):
        head = 1 + (min(question, 8) + 2 if question else 0)
        assert found.lengths.source[row] == head + sum(documents) + max(len(documents) - 1, 0) + 1


@given(st.lists(st.integers(0, 50), min_size=1, max_size=6), st.integers(10, 120))
def test_shares_that_are_handed_on_fill_the_room_evenly(documents, length):
    """No document is cut while a longer part of another is shown; parts of cut ones differ by one token at most."""
    frame = replace(FRAME, source_length=length, block=length, query=None, shares=True, handed_on=True)
    found = planned(frame, [(0, documents, 1)])
    kept = found.kept.sum(1).tolist()
    room = max(length - 2 - (len(documents) - 1), 0)
    assert sum(kept) == min(sum(documents), room)
    cut = [size for size, whole in zip(kept, documents, strict=True) if size < whole]
    if cut:
        assert max(cut) - min(cut) <= 1
        assert max(kept) <= min(cut) + 1
        assert cut == sorted(cut, reverse=True), "the first ones get the rest"


def test_both_ends_of_a_cut_text_are_kept():
    frame = replace(FRAME, source_length=13, block=13, query=None, tails=True)
    found = planned(frame, [(0, [30], 1)])
    assert found.streams[:, 0].tolist() == [30, 6, 5, 11]
    assert found.lengths.cut.documents.tolist() == [19]
