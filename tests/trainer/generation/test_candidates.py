"""The best tokens and continuations against sorted Python tuples, with many ties."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from trainer.generation.candidates import STEPS, best_candidates, best_tokens, on_grid


@st.composite
def tied(draw, rows):
    """``(R, V)`` log-probabilities of few different values, and V."""
    count, width = draw(rows), draw(st.integers(1, 7))
    values = draw(st.lists(st.integers(-3, 0), min_size=count * width, max_size=count * width))
    return torch.tensor(values, dtype=torch.float64).view(count, width) / STEPS


@given(log_probs=tied(st.integers(1, 4)), data=st.data())
def test_the_lowest_ids_are_first_among_equals(log_probs, data):
    count = data.draw(st.integers(1, log_probs.shape[1]))
    values, ids = best_tokens(log_probs, count)
    for row, own, numbers in zip(log_probs.tolist(), values.tolist(), ids.tolist(), strict=True):
        expected = sorted(range(len(row)), key=lambda number: (-row[number], number))[:count]
        assert numbers == expected
        assert own == [row[number] for number in expected]


@given(samples=st.integers(1, 3), beams=st.integers(1, 3), data=st.data())
def test_continuations_are_the_best_of_all_with_ties_by_beam_and_id(samples, beams, data):
    log_probs = data.draw(tied(st.just(samples * beams)))
    live = data.draw(st.lists(st.integers(-2, 0), min_size=samples * beams, max_size=samples * beams))
    live = torch.tensor(live, dtype=torch.float64).view(samples, beams) / STEPS
    vocabulary = log_probs.shape[1]
    count = data.draw(st.integers(1, beams * vocabulary))
    totals, parents, ids = best_candidates(log_probs, live, count)
    for sample in range(samples):
        every = [
            (-float(live[sample, beam] + log_probs[sample * beams + beam, token]), beam, token)
            for beam in range(beams)
            for token in range(vocabulary)
        ]
        expected = sorted(every)[:count]
        found = zip(totals[sample].tolist(), parents[sample].tolist(), ids[sample].tolist(), strict=True)
        assert [(-total, beam, token) for total, beam, token in found] == expected


def test_log_probabilities_are_multiples_of_a_step_whose_sums_are_exact():
    logits = 30 * torch.randn(5, 50)
    found = on_grid(logits)
    assert torch.equal(found * STEPS, (found * STEPS).round())
    torch.testing.assert_close(found, logits.double().log_softmax(-1), atol=1 / STEPS, rtol=1e-5)
    total = found.flatten().cumsum(0)[-1]
    assert total == found.flatten().flip(0).cumsum(0)[-1]  # in any order


def test_far_tokens_of_a_large_vocabulary_keep_the_order_of_their_ids():
    """Keys of 2^20 ids and log-probabilities down to -128 are whole numbers below 2^53."""
    log_probs = torch.full((1, 1 << 20), -127.5, dtype=torch.float64)
    log_probs[0, 77] += 1 / STEPS
    values, ids = best_tokens(log_probs, 4)
    assert ids.tolist() == [[77, 0, 1, 2]]
    assert values[0, 1] == -127.5


def test_continuations_that_differ_are_no_ties():
    """A difference of 4e-6 is more than float32 loses, and decides for the later id and the later beam."""
    log_probs = on_grid(torch.tensor([[0.0, 4e-6, -1.0], [0.0, 5e-6, -1.0]]))
    assert best_tokens(log_probs, 1)[1].tolist() == [[1], [1]]
    live = torch.zeros(1, 2, dtype=torch.float64)
    totals, beams, ids = best_candidates(log_probs - log_probs[:, 2:] - 1, live, 2)
    assert (beams.tolist(), ids.tolist()) == ([[1, 0]], [[1, 1]])
    assert totals[0, 0] > totals[0, 1]
