"""Tests of generation: against transformers and T5X, batches, devices."""

from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch

from corpora.errors import FarspanError
from corpora.storage.ragged import Ragged
from tests.trainer.conversion.models import tiny_config
from tests.trainer.generation.models import (
    FAMILIES,
    IDS,
    VOCAB,
    alone,
    assert_same,
    model_of,
    models,
    ragged,
    their_texts,
)
from tests.trainer.model.dense import PATTERNS
from trainer.generation.cached_decoder import CachedDecoder
from trainer.generation.config import DecoderIds, GenerationConfig, Sources
from trainer.generation.cross_cache import CrossCache, encode_rows
from trainer.generation.generate import generate
from trainer.generation.search import Texts, uniforms
from trainer.model.build import build_model, make_model
from trainer.model.config import DecoderConfig, EncoderConfig
from trainer.model.layers.heads import HeadsConfig
from trainer.model.layers.pooled import Pooling
from trainer.model.layers.sublayers import FeedForwardConfig
from trainer.model.patterns import Block, Local, Window
from trainer.model.positions import Buckets, Learned, Rotary, Sinusoidal

LENGTHS = [17, 3, 32, 9, 1, 16]
SLOW = pytest.mark.slow


@pytest.mark.parametrize("score", ["power", "gnmt"])
@pytest.mark.parametrize("penalty", [0.0, 1.0, 2.0])
def test_as_many_beams_as_texts_find_the_best_of_all_texts(score, penalty):
    """Ids 0 pads, 1 starts, 2 ends; 3 and 0 to 1 are all that a text of up to four tokens can hold."""
    model: Any = build_model(tiny_config(positions=16), vocab_size=4, seed=3).eval()
    ids = DecoderIds(start=1, end=2, pad=0)
    sources = ragged([7, 4], low=0, high=4)
    config = GenerationConfig(beams=40, score=score, length_penalty=penalty, finish="exact", max_tokens=4)
    found = generate(model, sources, config, ids)
    texts = [text for length in range(5) for text in product((1, 3), repeat=length)]
    for sample in range(2):
        own = alone(sources, sample)
        expected = []
        for text in texts:
            decoder_ids = torch.tensor([[1, *text]])
            with torch.no_grad():
                logits = model.logits(model.decode(decoder_ids, model.encode(own.source_ids)))
            log_probs = logits.log_softmax(-1)[0].gather(1, torch.tensor([*text, 2])[:, None])
            expected.append(float(log_probs.sum()) / config.penalty(len(text) + 1))
        assert found.tokens[sample].tolist() == list(texts[int(np.argmax(expected))])
        assert found.scores[sample] == pytest.approx(max(expected), abs=1e-4)


def assert_alone(model, sources, config, found):
    """Each sample's text and score are those that it has without the others."""
    for sample in range(len(sources)):
        one = generate(model, alone(sources, sample), config, IDS)
        assert one.tokens[0].tolist() == found.tokens[sample].tolist()
        assert_same(one.scores, found.scores[[sample]])


CONFIGS = [
    GenerationConfig(beams=1, max_tokens=20),
    GenerationConfig(beams=4, max_tokens=20, no_repeat_ngram=2, min_tokens=3, length_penalty=2.0),
    GenerationConfig(beams=3, max_tokens=20, score="gnmt", finish="exact"),
    GenerationConfig(beams=1, max_tokens=20, sample=True, top_k=8, top_p=0.9, temperature=1.3),
]


@pytest.mark.parametrize("config", CONFIGS, ids=str)
def test_a_ragged_batch_gives_each_sample_what_it_gives_alone(config):
    model = model_of(seed=1)
    seeds = np.arange(100, 106, dtype=np.uint64)
    prompts = Ragged.from_rows([[], [5, 6, 7], [], [9] * 18, [4], [3, 3]], np.int32)
    sources = ragged(LENGTHS, seeds=seeds, prompts=prompts)
    found = generate(model, sources, config, IDS)
    assert len({tuple(tokens.tolist()) for tokens in found.tokens}) > 3
    assert_alone(model, sources, config, found)


def test_samples_of_one_row_are_those_of_as_many_equal_rows():
    model, config = model_of(), GenerationConfig(beams=3, max_tokens=12)
    prompts = Ragged.from_rows([[5], [6, 7], [8, 9, 10], [11]], np.int32)
    shared = ragged([9, 14], rows=np.array([1, 0, 1, 1]), prompts=prompts)
    assert_alone(model, shared, config, generate(model, shared, config, IDS))


def test_more_tokens_than_positions_are_refused():
    with pytest.raises(FarspanError, match="max_tokens to at most 63"):
        generate(model_of(), ragged([3]), GenerationConfig(max_tokens=64), IDS)
    assert len(generate(model_of(), ragged([3]), GenerationConfig(max_tokens=63, min_tokens=63), IDS).tokens[0]) == 63


ENCODERS = [*((pattern, None) for pattern in PATTERNS), (Block(8), Pooling(1, 6, 4, 3))]
IDENTITIES = [*(pattern.pattern for pattern in PATTERNS), "pooled"]


@pytest.fixture
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def encoder(pattern, pooling, positions):
    known = Buckets(8, 12) if pattern.offsets(1) else Learned(positions)
    return EncoderConfig(layers=2, positions=known, attention=pattern, pooling=pooling)


def assert_independent(model, sources, config):
    """Every sample gets the same text alone, and the last two do in reverse order."""
    found = generate(model, sources, config, IDS)
    assert_alone(model, sources, config, found)
    rows, prompts = np.arange(len(sources))[::-1][:2], sources.prompts
    few = generate(model, replace(sources, rows=sources.encoder_rows[rows], prompts=prompts.take(rows)), config, IDS)
    assert [tokens.tolist() for tokens in few.tokens] == [found.tokens[row].tolist() for row in rows]
    assert_same(few.scores, found.scores[rows])


def with_globals(sources, pattern):
    if not isinstance(pattern, Window):
        return sources
    chosen = torch.arange(sources.source_ids.shape[1]) % torch.tensor([[5], [40], [9], [7]]) == 0
    return replace(sources, global_positions=chosen & sources.source_padding_mask)


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize(("pattern", "pooling"), ENCODERS, ids=IDENTITIES)
def test_a_sample_does_not_depend_on_its_batch(pattern, pooling):
    model = model_of(replace(tiny_config(positions=64), encoder=encoder(pattern, pooling, 64)))
    prompts = Ragged.from_rows([[], [5, 6, 7], [4], [8, 8]], np.int32)
    sources = with_globals(ragged([33, 3, 48, 40], prompts=prompts), pattern)
    assert_independent(model, sources, GenerationConfig(beams=3, max_tokens=6, no_repeat_ngram=2))


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize(("pattern", "pooling"), ENCODERS, ids=IDENTITIES)
def test_a_sample_does_not_depend_on_its_batch_at_larger_sizes(pattern, pooling):
    config = replace(
        tiny_config(positions=512),
        width=256,
        heads=HeadsConfig(count=4),
        feed_forward=FeedForwardConfig(width=1024),
        encoder=encoder(pattern, pooling, 512),
        init_std=0.08,
    )
    model = build_model(config, 3000, seed=0).eval()
    prompts = Ragged.from_rows([[], [5, 6, 7], [4] * 20, [8, 8]], np.int32)
    sources = with_globals(ragged([333, 30, 480, 470], high=3000, prompts=prompts), pattern)
    for beams in (1, 4, 5):
        assert_independent(model, sources, GenerationConfig(beams=beams, max_tokens=40, no_repeat_ngram=3))


PROMPTS = Ragged.from_rows([[], [5, 6, 7], [4]], np.int32)


@pytest.mark.parametrize("positions", [Learned(64), Sinusoidal(), Buckets(8, 16), Rotary()], ids=str)
@pytest.mark.parametrize("sample", [True, False])
def test_every_tensor_of_a_step_is_on_the_models_device(positions, sample):
    config = tiny_config(EncoderConfig(layers=1, positions=Buckets(8, 16), attention=Local(3)))
    config = replace(config, decoder=DecoderConfig(layers=1, positions=positions))
    meta = torch.device("meta")
    with meta:
        model: Any = make_model(config, 24).eval()
    options = GenerationConfig(beams=1 if sample else 3, sample=sample, no_repeat_ngram=2, max_tokens=9)
    sources = ragged([9, 30, 4], prompts=PROMPTS)
    prefixes = [np.append(IDS.start, PROMPTS[row]) for row in range(3)]
    with torch.no_grad():
        cross = CrossCache(encode_rows(model, sources, IDS.pad), sources.encoder_rows, options.beams, meta)
        decoder = CachedDecoder(model, cross, prefixes, 13)
        draws = uniforms(np.arange(3, dtype=np.uint64), options) if sample else None
        texts = Texts(prefixes, options, IDS, draws, meta)
        for step in range(3):
            parents = texts.advance(decoder.step(texts.tokens, texts.row_positions, 3 + step))
            decoder.reorder(parents, 0, 3 + step)
        texts.keep(np.array([0, 2]))
        decoder.keep(np.array([0, 2]))
        logits = decoder.step(texts.tokens, texts.row_positions, 6)
    assert {logits.device, texts.best.device, texts.live.device, decoder.cache.device} == {meta}
    assert logits.shape == (2 * options.beams, 24)


@pytest.mark.parametrize("automatic", [True, False])
def test_bfloat16_gives_the_texts_of_whole_passes_in_bfloat16(automatic):
    """Scores are those of a pass over the text, up to the rounding of bfloat16."""
    blocks = EncoderConfig(layers=2, positions=Learned(64), attention=Block(8))
    model = model_of(replace(tiny_config(positions=64), encoder=blocks))
    if not automatic:
        model = model.to(torch.bfloat16)
    sources, options = ragged([9, 30, 4], prompts=PROMPTS), GenerationConfig(beams=3, max_tokens=9, min_tokens=5)
    with torch.autocast("cpu", torch.bfloat16, enabled=automatic), torch.no_grad():
        found = generate(model, sources, options, IDS)
        encoded = model.encode(sources.source_ids, sources.source_padding_mask)
        for sample, tokens in enumerate(found.tokens):
            own = type(encoded)(encoded.states[sample : sample + 1], encoded.padding_mask[sample : sample + 1])
            ids = torch.tensor([[IDS.start, *PROMPTS[sample], *tokens]])
            targets = torch.tensor([*ids[0, 1:].tolist(), IDS.end])
            chosen = model.logits(model.decode(ids, own))[0].float().log_softmax(-1).gather(1, targets[:, None])
            score = float(chosen[len(PROMPTS[sample]) :].mean())
            assert found.scores[sample] == pytest.approx(score, abs=0.05)


def test_logits_that_are_not_finite_are_an_error():
    model = model_of()
    with torch.no_grad():
        model.tokens.weight[5, 0] = torch.nan
    with pytest.raises(FarspanError, match="sample 0 of the batch has logits that are not finite; generate in fp32"):
        generate(model, ragged([9]), GenerationConfig(max_tokens=5), IDS)


def case(number: int, end: int) -> GenerationConfig:
    """The settings of a case: every value meets every family and most values of the other settings."""
    draws = np.random.default_rng(number)
    low, high = sorted(draws.integers(0, 13, 2).tolist())
    return GenerationConfig(
        beams=1 + number % 8,
        length_penalty=float(draws.choice([0.0, 0.5, 1.0, 2.0, 5.0, -1.0])),
        finish="first" if number % 8 == 0 else ("first", "exact", "estimate")[number // 8 % 3],  # one beam: greedy
        no_repeat_ngram=int(draws.choice([0, 2, 3])),
        min_tokens=low,
        max_tokens=max(high, 1),
        first_tokens=(4 + (end == 4),) * int(draws.integers(0, 4) == 0),
    )


def sources_of(name: str, number: int, pad: int) -> Sources:
    """Two to four rows of unequal length; some with prompts, LED with a global first position."""
    draws = np.random.default_rng([number, 1])
    lengths = draws.integers(1, 31, draws.integers(2, 5))
    ids = torch.from_numpy(draws.integers(3, VOCAB, (len(lengths), lengths.max())))
    mask = torch.arange(int(lengths.max())) < torch.from_numpy(lengths)[:, None]
    prompts = None
    if number % 3 == 0:
        values = draws.integers(3, VOCAB, 2 * len(lengths)).astype(np.int32)
        prompts = Ragged.from_lengths(values, [2] * len(lengths))
    first = torch.zeros_like(mask)
    first[:, 0] = True
    return Sources(
        source_ids=ids.masked_fill(~mask, pad),
        source_padding_mask=mask,
        global_positions=first if name == "led" else None,
        prompts=prompts,
    )


def compare(name: str, number: int) -> int:
    """One case; number of texts that ended before their limit."""
    theirs, ours, ids = models(name, number % 10)
    config, sources = case(number, ids.end), sources_of(name, number, ids.pad)
    found = generate(ours, sources, config, ids)
    expected, scores = their_texts(theirs, sources, config, ids)
    assert [tokens.tolist() for tokens in found.tokens] == expected, (name, number, config)
    for score, own in zip(scores, found.scores.tolist(), strict=True):
        assert score is None or own == pytest.approx(score, abs=1e-3, rel=1e-4)
    return sum(len(tokens) < config.max_tokens for tokens in found.tokens)


@pytest.mark.parametrize(("cases", "least"), [((3, 20, 29, 39), 2), pytest.param(range(100), 20, marks=SLOW)], ids=str)
@pytest.mark.parametrize("name", FAMILIES)
def test_texts_are_those_of_transformers(name, cases, least):
    assert sum(compare(name, number) for number in cases) > least, "nearly all texts are cut by the limit"


def restated(model, source, beams: int, alpha: float, most: int, ids: DecoderIds) -> tuple[list[int], float]:
    """t5x/decoding.py: beam_search, with our end of texts that have ``most`` tokens."""
    encoded = model.encode(source)
    live, ended = [(0.0, [ids.start])], []
    for count in range(1, most + 2):
        candidates = []
        for total, text in live:
            logits = model.logits(model.decode(torch.tensor([text]), encoded))[0, -1]
            for token, own in enumerate(logits.log_softmax(-1).tolist()):
                if token != ids.pad and (count <= most or token == ids.end):
                    candidates.append((total + own, [*text, token]))
        candidates = sorted(candidates, key=lambda candidate: -candidate[0])[: 2 * beams]
        new = [(total / ((5 + count) / 6) ** alpha, text) for total, text in candidates if text[-1] == ids.end]
        ended = sorted(ended + new, key=lambda candidate: -candidate[0])[:beams]
        live = [candidate for candidate in candidates if candidate[1][-1] != ids.end][:beams]
        longest = ((5 + most + 1) / 6) ** alpha
        if not live or (len(ended) == beams and ended[-1][0] > live[0][0] / longest):
            break
    score, text = ended[0]
    return text[1:-1], score


def compare_t5x(seed: int) -> int:
    """Three sources of one model under drawn settings; number of texts that ended before their limit."""
    draws = np.random.default_rng(seed)
    beams, alpha, most = int(draws.integers(1, 7)), float(draws.choice([0.0, 0.6, 1.0, 2.0])), int(draws.integers(1, 9))
    model, sources = model_of(seed=seed), ragged(draws.integers(1, 30, 3).tolist(), seed=seed)
    config = GenerationConfig(beams=beams, score="gnmt", length_penalty=alpha, finish="exact", max_tokens=most)
    with torch.no_grad():
        likely = model.logits(model.decode(sources.source_ids[:, :3], model.encode(sources.source_ids))).mean((0, 1))
    likely[:3] = -torch.inf
    ids = DecoderIds(start=2, end=int(likely.topk(3).indices[seed % 3]), pad=1)
    found = generate(model, sources, config, ids)
    for sample in range(3):
        with torch.no_grad():
            text, score = restated(model, alone(sources, sample).source_ids, beams, alpha, most, ids)
        assert found.tokens[sample].tolist() == text, (seed, config)
        assert found.scores[sample] == pytest.approx(score, abs=1e-3)
    return sum(len(text) < most for text in found.tokens)


@pytest.mark.parametrize("seeds", [4, pytest.param(100, marks=SLOW)])
def test_texts_are_those_of_t5x(seeds):
    assert sum(compare_t5x(seed) for seed in range(seeds)) > seeds // 2
