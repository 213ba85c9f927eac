"""Rules for global positions."""

from dataclasses import replace

import numpy as np
import pytest

from corpora.errors import FarspanError
from objectives.base import CorpusFacts
from objectives.examples import IGNORED
from objectives.global_attention import global_positions
from objectives.span import Span
from tests.factories import OWNED, VOCAB, make_sequences

BATCH = make_sequences([40, 12], 3)
FACTS = CorpusFacts(VOCAB, OWNED, 50, 40, 3)


def rendered(rule: str):
    objective = Span(begin=True, global_attention=rule)
    special = objective.validate(FACTS)
    return objective.render(BATCH, objective.mask(BATCH, bytes(16)), special), special


def test_none_is_none():
    assert rendered("none")[0].global_positions is None


@pytest.mark.parametrize("rule", ["bos", "separators", "masked"])
def test_rules_mark_their_tokens(rule):
    examples, special = rendered(rule)
    chosen = {
        "bos": [special["<bos>"]],
        "separators": [special["<bos>"], special["<doc-sep>"]],
        "masked": special.sentinels.tolist(),
    }[rule]
    assert np.array_equal(examples.global_positions, np.isin(examples.source_ids, chosen))
    assert examples.global_positions.any(axis=1).all()


def test_first_n_stays_inside_of_the_row():
    examples, special = rendered("none")
    first = global_positions(examples, special, "first_n", first=20)
    assert first.sum(axis=1).tolist() == [20, min(20, int(examples.source_lengths[1]))]


def test_masked_positions_are_those_with_labels():
    examples, special = rendered("none")
    labels = np.full(examples.source_ids.shape, IGNORED, np.int32)
    labels[0, 4] = 17
    assert global_positions(replace(examples, labels=labels), special, "masked")[0, 4]


def test_other_rules_are_refused():
    examples, special = rendered("none")
    with pytest.raises(FarspanError, match="global attention 'all' is no rule; choose none, bos, separators"):
        global_positions(examples, special, "all")
