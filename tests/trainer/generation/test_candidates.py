"""Tests of candidates, of the texts in progress, of sources and of options."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from corpora.errors import FarspanError
from corpora.storage.ragged import Ragged
from tests.trainer.generation.models import IDS, model_of, ragged
from trainer.generation.config import DecoderIds, Generated, GenerationConfig, Sources
from trainer.generation.generate import generate
from trainer.generation.search import (
    STEPS,
    Texts,
    best_candidates,
    best_tokens,
    constrain,
    draw,
    round_to_grid,
    uniforms,
    without_repeats,
)


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
    found = round_to_grid(logits)
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
    log_probs = round_to_grid(torch.tensor([[0.0, 4e-6, -1.0], [0.0, 5e-6, -1.0]]))
    assert best_tokens(log_probs, 1)[1].tolist() == [[1], [1]]
    live = torch.zeros(1, 2, dtype=torch.float64)
    totals, beams, ids = best_candidates(log_probs - log_probs[:, 2:] - 1, live, 2)
    assert (beams.tolist(), ids.tolist()) == ([[1, 0]], [[1, 1]])
    assert totals[0, 0] > totals[0, 1]


# Forbidden and forced tokens; n-grams against a restatement with lists


@pytest.mark.parametrize("size", [1, 2, 3, 4, 7])
def test_exactly_the_tokens_that_complete_an_earlier_ngram_are_forbidden(size):
    draws = np.random.default_rng(size)
    rows, width, vocabulary = 300, 24, 3
    history = torch.from_numpy(draws.integers(0, vocabulary, (rows, width)))
    positions = torch.from_numpy(draws.integers(0, width, rows))
    log_probs = torch.from_numpy(draws.normal(size=(rows, vocabulary)))
    found = without_repeats(log_probs, history, positions, size)
    for row in range(rows):
        text = history[row, : positions[row] + 1].tolist()
        grams = {tuple(text[i : i + size]) for i in range(len(text) - size + 1)}
        last = text[len(text) - size + 1 :] if len(text) >= size - 1 else None
        for token in range(vocabulary):
            forbidden = last is not None and (*last, token) in grams
            assert found[row, token] == (-torch.inf if forbidden else log_probs[row, token])


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("beams", [1, 4])
def test_long_texts_hold_no_ngram_twice(size, beams):
    """Prompts and starts count; without blocking these models repeat themselves at once."""
    model, prompts = model_of(), Ragged.from_rows([[], [5, 6, 5], [7] * 6], np.int32)
    sources = ragged([9, 30, 4], prompts=prompts)
    options = {"beams": beams, "max_tokens": 50, "min_tokens": 50}
    free = generate(model, sources, GenerationConfig(**options), IDS)
    found = generate(model, sources, GenerationConfig(**options, no_repeat_ngram=size), IDS)
    for sample in range(3):
        repeats = []
        for tokens in (free.tokens[sample], found.tokens[sample]):
            grams = [tuple(tokens[i : i + size].tolist()) for i in range(len(tokens) - size + 1)]
            repeats.append(len(grams) - len(set(grams)))
        assert repeats[0] > 20
        assert repeats[1] == 0


def test_a_text_that_may_not_go_on_ends():
    """Three ids that no bigram may repeat, and at least nine tokens."""
    ids, config = DecoderIds(start=0, end=1, pad=2), GenerationConfig(no_repeat_ngram=1, min_tokens=9, max_tokens=12)
    log_probs = torch.tensor([[-1.0, -2.0, -0.5, -3.0]], dtype=torch.float64)
    history = torch.tensor([[0, 3, 2, 2, 2, 2, 2]])
    found = constrain(log_probs, history, torch.tensor([1]), 1, config, ids)
    assert found.tolist() == [[-torch.inf, -2.0, -torch.inf, -torch.inf]]


def test_lengths_and_forced_tokens():
    model, sources = model_of(), ragged([9, 30, 4, 17, 22])
    config = GenerationConfig(min_tokens=4, max_tokens=7, first_tokens=(9, 11), length_penalty=-2.0)
    lengths = set()
    for end in range(12, 24):
        for tokens in generate(model, sources, config, IDS._replace(end=end)).tokens:
            assert tokens[:2].tolist() == [9, 11]
            assert not {end, IDS.pad} & set(tokens.tolist())
            lengths.add(len(tokens))
    assert min(lengths) == 4
    assert max(lengths) <= 7


# Draws: their distribution, the tokens they may take, and their keys

SHARES = np.array([0.4, 0.05, 0.3, 0.0, 0.15, 0.1])


def drawn_shares(**options):
    """Share of each id in 40,000 evenly spread draws."""
    count = 40_000
    with np.errstate(divide="ignore"):
        log_probs = torch.from_numpy(np.log(SHARES)).expand(count, -1)
    even = (torch.arange(count, dtype=torch.float64) + 0.5) / count
    tokens = draw(log_probs, even, GenerationConfig(beams=1, sample=True, **options))
    return np.bincount(tokens.numpy(), minlength=len(SHARES)) / count


@pytest.mark.parametrize(
    ("options", "kept", "power"),
    [
        ({}, [0, 1, 2, 4, 5], 1),
        ({"temperature": 0.5}, [0, 1, 2, 4, 5], 2),
        ({"temperature": 2.0}, [0, 1, 2, 4, 5], 0.5),
        ({"temperature": 1e-320}, [0], 1),
        ({"temperature": 1e308}, [0, 1, 2, 4, 5], 0),
        ({"top_k": 2}, [0, 2], 1),
        ({"top_k": 99}, [0, 1, 2, 4, 5], 1),
        ({"top_p": 0.69}, [0, 2], 1),
        ({"top_p": 0.72}, [0, 2, 4], 1),
        ({"top_p": 1e-9}, [0], 1),
        ({"top_k": 3, "top_p": 0.8}, [0, 2], 1),  # of the three, 0.4 and 0.3 are 0.82
        ({"top_k": 4, "temperature": 0.5}, [0, 2, 4, 5], 2),
    ],
)
def test_tokens_are_drawn_by_their_share_of_what_is_kept(options, kept, power):
    expected = np.zeros(len(SHARES))
    expected[kept] = SHARES[kept] ** power
    np.testing.assert_allclose(drawn_shares(**options), expected / expected.sum(), atol=2e-4)


def test_equal_tokens_at_the_edge_of_top_k_are_taken_by_the_lowest_id():
    log_probs = torch.full((50, 8), -2.0, dtype=torch.float64)
    even = torch.linspace(0, 0.99, 50, dtype=torch.float64)
    assert set(draw(log_probs, even, GenerationConfig(beams=1, sample=True, top_k=3)).tolist()) == {0, 1, 2}


def test_draws_belong_to_the_seed_of_the_sample():
    config = GenerationConfig(beams=1, sample=True, max_tokens=30)
    seeds = np.array([7, 2**64 - 1, 7, 0], np.uint64)
    first = uniforms(seeds, config)
    assert first.shape == (4, 31)
    assert (first[0] == first[2]).all()
    assert len(np.unique(first)) == 3 * 31
    assert not np.isin(uniforms(seeds, GenerationConfig(beams=1, sample=True, max_tokens=30, seed=1)), first).any()
    assert abs(uniforms(np.arange(200, dtype=np.uint64), config).mean() - 0.5) < 0.02


def test_sampled_texts_differ_by_seed_only():
    model, config = model_of(), GenerationConfig(beams=1, sample=True, max_tokens=12, min_tokens=4)
    rows, seeds = np.zeros(6, np.int64), np.array([3, 3, 4, 5, 6, 3], np.uint64)
    found = generate(model, ragged([9], rows=rows, seeds=seeds), config, IDS)
    texts = [tokens.tolist() for tokens in found.tokens]
    assert texts[0] == texts[1] == texts[5]
    assert len({tuple(text) for text in texts}) > 2


def test_sampling_from_the_best_token_alone_is_greedy():
    model, sources = model_of(seed=2), ragged([9, 4], seeds=np.arange(2, dtype=np.uint64))
    greedy = generate(model, sources, GenerationConfig(beams=1, max_tokens=12), IDS)
    single = generate(model, sources, GenerationConfig(beams=1, sample=True, top_k=1, max_tokens=12), IDS)
    assert [text.tolist() for text in single.tokens] == [text.tolist() for text in greedy.tokens]
    np.testing.assert_array_equal(single.scores, greedy.scores)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"beams": 0}, "generation.beams is 0; it must be at least 1"),
        ({"max_tokens": 0}, "generation.max_tokens is 0"),
        ({"min_tokens": 9, "max_tokens": 8}, "generation.min_tokens is 9, above generation.max_tokens 8"),
        ({"no_repeat_ngram": -1}, "no_repeat_ngram is -1"),
        ({"first_tokens": (1, 2), "max_tokens": 1}, "first_tokens are 2, above"),
        ({"length_penalty": float("inf")}, "length_penalty is inf"),
        ({"length_penalty": float("nan")}, "length_penalty is nan"),
        ({"length_penalty": 200}, "length_penalty is 200, with which the penalty of a text of 256 tokens is no float"),
        ({"length_penalty": -200.0, "score": "gnmt"}, "length_penalty is -200"),
        ({"sample": True}, "set beams to 1"),
        ({"top_k": 3}, "generation.sample is not; set it"),
        ({"beams": 1, "sample": True, "top_p": 0.0}, "top_p is 0.0"),
        ({"beams": 1, "sample": True, "temperature": 0.0}, "temperature is 0.0"),
    ],
)
def test_options_out_of_range_are_refused(options, message):
    with pytest.raises(FarspanError, match=message):
        GenerationConfig(**options)


def test_penalties():
    assert GenerationConfig(length_penalty=2.0).penalty(3) == 9
    assert GenerationConfig(score="gnmt", length_penalty=0.6).penalty(7) == pytest.approx(2**0.6)
    assert [GenerationConfig(length_penalty=0.0, score=score).penalty(5) for score in ("power", "gnmt")] == [1, 1]


NO_IDS = torch.zeros(2, 5, dtype=torch.int64)


def test_samples_are_rows_unless_rows_are_given():
    assert len(Sources(source_ids=NO_IDS)) == 2
    assert Sources(source_ids=NO_IDS).encoder_rows.tolist() == [0, 1]
    several = Sources(source_ids=NO_IDS, rows=np.array([1, 1, 0]))
    assert len(several) == 3
    assert several.encoder_rows.tolist() == [1, 1, 0]
    assert len(Sources(source_ids=NO_IDS, rows=np.zeros(0, np.int64))) == 0
    assert len(Generated([np.zeros(3, np.int32)], np.zeros(1, np.float32))) == 1


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"source_padding_mask": torch.ones(2, 4, dtype=torch.bool)}, r"source_padding_mask is \(2, 4\), source_ids"),
        ({"segment_ids": torch.ones(1, 5)}, r"segment_ids is \(1, 5\), source_ids \(2, 5\); align them"),
        ({"global_positions": torch.ones(5, dtype=torch.bool)}, r"global_positions is \(5,\)"),
        ({"prompts": Ragged.from_rows([[1]], np.int32)}, "1 prompts for 2 samples; give one for each"),
        ({"seeds": np.zeros(3, np.uint64), "rows": np.array([0, 1])}, "3 seeds for 2 samples"),
        ({"rows": np.array([0, 2, 1])}, "sample 1 has row 2, but there are 2 encoder rows"),
        ({"rows": np.array([1, 0, -1])}, "sample 2 has row -1, but there are 2 encoder rows"),
    ],
)
def test_fields_of_different_lengths_are_refused(fields, said):
    with pytest.raises(FarspanError, match=said):
        Sources(source_ids=NO_IDS, **fields)


DECODER_IDS, VOCABULARY = DecoderIds(start=2, end=2, pad=1), 7

PREFIXES = [np.array([2]), np.array([2, 5, 6]), np.array([2, 4])]

CPU = torch.device("cpu")


def table(seed):
    """Logits of a made-up model, which depend on the last token alone."""
    return 3 * torch.randn(VOCABULARY, VOCABULARY, generator=torch.Generator().manual_seed(seed))


def texts_of(**options):
    return Texts(PREFIXES, GenerationConfig(**{"max_tokens": 5, **options}), DECODER_IDS, None, CPU)


def step(texts, model):
    """One step of all texts; the text that each one continues."""
    return texts.advance(model[texts.tokens])


def test_texts_share_the_columns_in_which_all_beams_agree():
    model, texts = table(1), texts_of(beams=3, min_tokens=5)
    known = texts.shared_columns()
    assert known == 1  # the shortest prefix
    for _ in range(4):
        step(texts, model)
        expected = min(
            next((i for i in range(int(last) + 1) if len(set(rows[:, i].tolist())) > 1), int(last) + 1)
            for rows, last in zip(texts.history, texts.positions, strict=True)
        )
        assert texts.shared_columns() == expected >= known
        known = expected


def test_samples_that_are_kept_go_on_as_they_would_have():
    model = table(2)
    whole, few = texts_of(beams=2, min_tokens=3), texts_of(beams=2, min_tokens=3)
    for number in range(6):
        step(whole, model)
        step(few, model)
        if number == 1:
            few.keep(np.array([0, 2]))
            assert len(few) == 2
    for name in ("best", "best_length", "kept", "live", "done"):
        assert torch.equal(getattr(few, name), getattr(whole, name)[[0, 2]]), name
