"""Several questions about the same documents as one example, and their answers back from its text."""

from __future__ import annotations

from dataclasses import replace
from itertools import groupby, pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpora.errors import FarspanError
from corpora.storage.ragged import Ragged
from objectives.api.special_tokens import DOCUMENT_SEPARATOR
from objectives.tasks.protocol import NO_TARGET, load_task
from objectives.tasks.questions import divide_answers, group_questions, split_groups
from tests.objectives.tasks.pairs import BOS, EOS, FACTS, pair_batch

LISTS = st.lists(st.integers(4, 399), max_size=5)


@given(st.lists(st.lists(st.integers(0, 2), max_size=2), max_size=30), st.integers(1, 4), st.integers(1, 7))
def test_groups_are_runs_of_equal_documents(documents, most, size):
    offsets = group_questions(Ragged.from_rows(documents, np.int64), most)
    runs = [len(list(run)) for _, run in groupby(documents)]
    assert np.diff(offsets).tolist() == [min(most, run - done) for run in runs for done in range(0, run, most)]
    parts = split_groups(np.arange(100, 100 + len(documents)), offsets, size)
    assert [row for part in parts for row in part] == list(range(100, 100 + len(documents)))
    assert {int(part[0]) - 100 for part in parts} <= {*offsets.tolist()}
    if most == 1:
        assert [len(part) for part in parts] == [
            len(documents[at : at + size]) for at in range(0, len(documents), size)
        ]


@given(st.lists(st.tuples(LISTS, LISTS, LISTS), min_size=1, max_size=6), st.integers(1, 4), st.booleans())
def test_answers_come_back_from_a_joined_target(pairs, most, second):
    batch = pair_batch([[[9, 8]]] * len(pairs), [query for query, *_ in pairs], [list(own) for _, *own in pairs])
    offsets = group_questions(batch.pair_documents, most)
    task = load_task("text_to_text", None, {"targets": "first", "questions": most, "query": "decoder", "begin": False})
    special = task.validate(FACTS)
    chosen = np.full(len(pairs), int(second))
    examples = task.render(replace(batch, example_offsets=offsets), chosen, special).examples
    assert [*examples.sequence_ids.tobytes()] == [*batch.keys[offsets[:-1]].tobytes()]
    separator = special.ids.get(DOCUMENT_SEPARATOR, 400)
    for row, (begin, end) in enumerate(pairwise(offsets)):
        target = examples.target_ids[row, : examples.target_lengths[row]]
        prompt = examples.prompt_lengths[row]
        queries, answers = (
            divide_answers(part, end - begin, separator) for part in (target[:prompt], target[prompt:-1])
        )
        assert [part.tolist() for part in queries] == [query for query, *_ in pairs[begin:end]]
        assert [part.tolist() for part in answers] == [own[second] for _, *own in pairs[begin:end]]
        assert target[-1] == EOS
        assert examples.source_ids[row, : examples.source_lengths[row]].tolist() == [9, 8, EOS]


def test_missing_and_further_answers():
    tokens = np.array([5, 400, 400, 6, 7])
    assert [part.tolist() for part in divide_answers(tokens, 2, 400)] == [[5], []]
    assert [part.tolist() for part in divide_answers(tokens, 5, 400)] == [[5], [], [6, 7], [], []]


def test_questions_stand_before_the_documents_and_nothing_is_answered_in_a_prompt():
    batch = pair_batch([[[9]], [[9]], [[8]]], [[20], [21, 22], [23]], [[[30]], [[31]], [[32]]])
    task = load_task("text_to_text", None, {"targets": "sampled", "questions": 2})
    special = task.validate(FACTS)
    between = special[DOCUMENT_SEPARATOR]
    asked = replace(batch, example_offsets=group_questions(batch.pair_documents, 2))
    examples = task.render(asked, np.full(3, NO_TARGET), special).examples
    assert examples.target_lengths.tolist() == [0, 0]
    sources = [ids[:size].tolist() for ids, size in zip(examples.source_ids, examples.source_lengths, strict=True)]
    assert sources == [[BOS, 20, between, 21, 22, 9, EOS], [BOS, 23, 8, EOS]]


def test_each_target_of_several_questions_is_refused():
    with pytest.raises(FarspanError, match="option questions is 3; give 1, or targets=first or sampled beside it"):
        load_task("text_to_text", None, {"questions": 3})
