"""Rules for global positions."""

from dataclasses import replace

import numpy as np
import pytest

from corpora.errors import FarspanError
from corpora.storage.ragged import Ragged
from objectives.api.examples import IGNORED
from objectives.api.protocol import CorpusFacts
from objectives.api.special_tokens import SpecialTokens
from objectives.rendering.global_attention import global_positions
from objectives.rendering.layout import Layout
from objectives.rendering.render import render_sentinels
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


def test_separators_are_all_that_stands_at_edges_of_documents():
    """PRIMERA: the first position, and the separator behind every document."""
    special = SpecialTokens.append(VOCAB, OWNED, ["<doc-sep>", "<doc-s>"])
    masks = Span().mask(BATCH, bytes(16))
    masks = replace(masks, span_flags=Ragged(np.zeros_like(masks.span_flags.values), masks.span_flags.offsets))
    for layout, expected in (
        (Layout(begin=None, after="<doc-sep>"), ["<doc-sep>"]),
        (Layout(before="<doc-s>", after="<doc-sep>"), ["<doc-s>", "<doc-sep>"]),
    ):
        examples = render_sentinels(BATCH, masks, special, layout)
        chosen = global_positions(examples, special, "separators", layout=layout)
        wanted = np.isin(examples.source_ids, [special[name] for name in expected])
        wanted[:, 0] = True
        assert np.array_equal(chosen, wanted)
        assert wanted.sum() == 2 + len(expected) * 6  # two rows of three documents


def test_a_prefix_is_as_long_as_what_is_masked():
    examples, special = rendered("masked")
    chosen = global_positions(examples, special, "masked_and_prefix")
    for row in range(len(examples)):
        masked = np.flatnonzero(np.isin(examples.source_ids[row], special.sentinels))
        assert set(np.flatnonzero(chosen[row])) == {*masked.tolist(), *range(len(masked))}


def test_other_rules_are_refused():
    examples, special = rendered("none")
    with pytest.raises(FarspanError, match="global attention 'all' is no rule; choose none, bos, separators"):
        global_positions(examples, special, "all")
