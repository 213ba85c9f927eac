"""The scorer of model_based: the rows that it is given, and scorers that are refused."""

from __future__ import annotations

import numpy as np
import pytest

from corpora.errors import FarspanError
from objectives.api.examples import IGNORED
from objectives.api.protocol import Objective, Tools
from objectives.api.special_tokens import DOCUMENT_BEGIN, DOCUMENT_END, DOCUMENT_SEPARATOR, MASK, SpecialTokens
from objectives.model_based import ModelBased
from tests.factories import OWNED, VOCAB, make_sequences
from tests.objectives.test_model_based import KEY, RandomScorer, model_based
from tests.toy_tools import ToyScorer, ToyTokenizer


def test_the_scorer_sees_every_candidate_token_as_a_mask():
    batch = make_sequences([50, 0, 9], [[0, 10, 30], [], [0]], seed=2)
    scorer = RandomScorer()
    masks = model_based(scorer).mask(batch, KEY)
    ids, lengths, labels = scorer.shown
    assert lengths.tolist() == [52, 2, 11]
    for row in range(3):
        text = ids[row, 1 : lengths[row] - 1]
        assert ids[row, [0, lengths[row] - 1]].tolist() == [OWNED["<bos>"], OWNED["<eos>"]]
        hidden = np.zeros(len(text), bool)
        for start, size in zip(masks.span_starts[row], masks.span_lengths[row], strict=True):
            hidden[start : start + size] = True
        assert (text[hidden] == scorer.special[MASK]).all()
        assert np.array_equal(text[~hidden], batch.tokens[row][~hidden])
        asked = labels[row, 1 : lengths[row] - 1]
        assert np.array_equal(asked[hidden], batch.tokens[row][hidden])
        assert (asked[~hidden] == IGNORED).all()
        assert (labels[row, [0, lengths[row] - 1]] == IGNORED).all()


@pytest.mark.parametrize("edges", [(DOCUMENT_SEPARATOR,), (DOCUMENT_BEGIN, DOCUMENT_END)])
def test_the_scorer_sees_the_special_tokens_it_knows(edges):
    special = SpecialTokens.append(VOCAB, {"<pad>": 0}, [MASK, *edges])
    bare = SpecialTokens(
        {name: number for name, number in special.ids.items() if name not in ("<bos>", "<eos>")}, 40_000
    )
    batch = make_sequences([50], [[0, 10, 30]], seed=2)
    scorer = RandomScorer(bare)
    model_based(scorer).mask(batch, KEY)
    ids = scorer.shown[0][0]
    marks = [(place, int(ids[place])) for place in np.flatnonzero(ids > bare[MASK])]
    if len(edges) == 1:
        assert marks == [(10, bare[edges[0]]), (31, bare[edges[0]])]
    else:
        before, after = (bare[edge] for edge in edges)
        assert marks == [(0, before), (11, after), (12, before), (33, after), (34, before), (55, after)]


def test_without_a_scorer_the_message_says_how_to_give_one():
    for attempt in (
        lambda: ModelBased().mask(make_sequences([9]), KEY),
        lambda: ModelBased().with_tools(Tools(ToyTokenizer())),
    ):
        with pytest.raises(
            FarspanError,
            match=r"--scorer FOLDER, in a recipe data\.objective\.scorer, or in Python .*Tools\(tokenizer, scorer=",
        ):
            attempt()
    assert ModelBased().tools == {}
    assert model_based().tools == {"scorer": "toy scorer"}
    assert isinstance(ModelBased(), Objective)


def test_a_scorer_of_other_ids_is_refused_naming_both():
    class Foreign(ToyScorer):
        tokenizer_fingerprint = "foreign"

    with pytest.raises(FarspanError, match="scorer's tokenizer has fingerprint foreign, the corpus's toy"):
        model_based(Foreign())


def test_a_scorer_without_a_mask_token_is_refused():
    with pytest.raises(FarspanError, match="the scorer has no <mask> token"):
        model_based(RandomScorer(SpecialTokens.append(VOCAB, OWNED)))


def test_losses_that_are_no_numbers_are_refused_by_sequence():
    class Broken(ToyScorer):
        def losses(self, ids, lengths, labels):
            losses = super().losses(ids, lengths, labels)
            losses[2, labels[2] != IGNORED] = np.nan
            return losses

    batch = make_sequences([50, 0, 60])
    with pytest.raises(FarspanError, match=f"losses of sequence {batch.sequence_id(2).hex()} are not finite"):
        model_based(Broken()).mask(batch, KEY)
