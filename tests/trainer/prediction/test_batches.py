from __future__ import annotations

import numpy as np
import pytest

from objectives.api.examples import Examples
from objectives.api.special_tokens import SpecialTokens
from trainer.prediction.predictor import make_batches

SPECIAL = SpecialTokens({"<pad>": 0, "<eos>": 1}, 9)


def batches_of(lengths, shared, decoder, most):
    return list(make_batches(np.array(lengths), np.array(shared), np.array(decoder), most))


@pytest.mark.parametrize("seed", range(20))
def test_every_pair_is_in_one_batch_that_fits_or_has_one_pair(seed):
    draw = np.random.default_rng(seed)
    shared = draw.integers(0, 12, 40)
    lengths = draw.integers(1, 100, 12)[shared]
    decoder = draw.integers(1, 60, 40)
    most = int(draw.integers(50, 600))
    found = batches_of(lengths, shared, decoder, most)
    assert sorted(np.concatenate([batch.pairs for batch in found])) == list(range(40))
    assert sum(len(batch.sources) for batch in found) <= 12 + len(
        found
    )  # a source is encoded again in a new batch only
    for batch in found:
        assert (shared[batch.sources[batch.rows]] == shared[batch.pairs]).all()
        assert len(set(shared[batch.sources])) == len(batch.sources)
        positions = len(batch.sources) * lengths[batch.sources].max() + decoder[batch.pairs].sum()
        assert positions <= most or len(batch.pairs) == 1
    longest = [lengths[batch.sources].max() for batch in found]
    assert longest == sorted(longest, reverse=True)


def test_questions_about_one_document_are_one_encoder_row():
    (batch,) = batches_of([30, 50, 30, 30], [0, 1, 0, 0], [4, 4, 4, 4], 1000)
    assert batch.sources.tolist() == [1, 0]
    assert batch.pairs.tolist() == [1, 0, 2, 3]
    assert batch.rows.tolist() == [0, 1, 1, 1]


def test_inputs_are_the_rows_of_the_examples():
    ids = np.array([[5, 6, 1, 0], [7, 1, 0, 0], [8, 8, 8, 1]], np.int32)
    lengths = np.array([3, 2, 4], np.int32)
    examples = Examples(
        sequence_ids=np.arange(48, dtype=np.uint8).reshape(3, 16),
        source_ids=ids,
        source_lengths=lengths,
        target_ids=np.array([[4, 0], [0, 0], [4, 5]], np.int32),
        target_lengths=np.array([1, 0, 2], np.int32),
        global_positions=ids == 5,
        prompt_lengths=np.array([1, 0, 2], np.int32),
    )
    (batch,) = batches_of(lengths[:2], [0, 1], [1, 1], 100)
    sources = batch.inputs(examples, SPECIAL, multiple=2)
    assert sources.source_ids.tolist() == [[5, 6, 1], [7, 1, 0]]
    assert sources.source_padding_mask.tolist() == [[True, True, True], [True, True, False]]
    assert sources.global_positions.tolist() == [[True, False, False], [False, False, False]]
    assert [row.tolist() for row in map(sources.prompts.__getitem__, range(2))] == [[4], []]
    assert sources.seeds.tolist() == [int.from_bytes(bytes(range(first, first + 8)), "little") for first in (0, 16)]
    assert sources.multiple == 2
    (full,) = batches_of([4], [0], [1], 100)
    assert full.inputs(examples.take(np.array([2])), SPECIAL).source_padding_mask is None
