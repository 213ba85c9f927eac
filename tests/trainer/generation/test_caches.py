"""Tests of the cached decoder and of the keys of encoded rows."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch

from corpora.storage.ragged import Ragged
from tests.trainer.conversion.models import tiny_config
from tests.trainer.generation.models import IDS, alone, model_of, ragged
from tests.trainer.model.dense import PATTERNS
from trainer.generation.cached_decoder import CachedDecoder, _attend_across
from trainer.generation.cross_cache import CrossCache, encode_rows
from trainer.model.config import DecoderConfig, EncoderConfig, OutputConfig
from trainer.model.layers.pooled import Pooling
from trainer.model.layers.sublayers import EmbeddingConfig, FeedForwardConfig, NormConfig
from trainer.model.patterns import Block, Layered, Span, Staggered, Window
from trainer.model.positions import Buckets, Learned, NoPositions, Rotary, Sinusoidal

LENGTHS, TEXT, BEAMS = [17, 3, 32], 21, 3

PLAIN = tiny_config(positions=64)

GROUPED = replace(PLAIN.heads, count=4, kv_count=2, bias=False, scale_width=3, norm_eps=1e-6)

POSITIONS = [
    Learned(64),
    Sinusoidal(),
    Sinusoidal("pegasus_x"),
    Buckets(8, 16),
    Buckets(8, 16, per_layer=True),
    Rotary(),
    NoPositions(),
]


def with_decoder(**options):
    return replace(PLAIN, decoder=DecoderConfig(**{"layers": 3, "positions": Learned(64), **options}))


def with_encoder(pattern, **options):
    positions = Buckets(8, 12) if pattern.offsets(1) else Learned(64)
    return replace(PLAIN, encoder=EncoderConfig(layers=2, positions=positions, attention=pattern, **options))


DECODERS = {
    "some layers": with_decoder(cross_attention=(0, 2)),
    "extra tokens": replace(
        with_encoder(Staggered(8, 3)),
        decoder=DecoderConfig(layers=2, positions=Learned(64), global_cross_attention=True),
    ),
    "own output": replace(PLAIN, output=OutputConfig(tied=False)),
    "scaled output": replace(PLAIN, output=OutputConfig(scaled=True), embedding=EmbeddingConfig(scaled=True)),
    "norm first": replace(PLAIN, norm=NormConfig(placement="pre", kind="rms"), embedding=EmbeddingConfig(norm=False)),
    "gated": replace(PLAIN, feed_forward=FeedForwardConfig(width=24, activation="gelu_tanh", gated=True, bias=False)),
    "grouped heads": replace(PLAIN, heads=GROUPED),
    "norms on both sides": replace(PLAIN, norm=NormConfig(placement="both", kind="rms")),
    "layered": replace(
        with_decoder(positions=Rotary(local_theta=50.0, factor=4.0), attention=Layered(6, 0, 2, causal=True)),
        heads=GROUPED,
    ),
    "merged": replace(
        with_decoder(positions=Rotary(local_theta=50.0), attention=Layered(6, 0, 2, causal=True), cross="merged"),
        heads=GROUPED,
    ),
    "merged in some layers": with_decoder(cross="merged", cross_attention=(0, 2), attention=Span(4, 0)),
    "unscaled heads": replace(PLAIN, heads=replace(PLAIN.heads, scaled=False, bias=False, width=6)),
}


def check(config, segments=False, chosen=False):
    """Every text of a ragged batch, beside others and behind its prompt, step by step."""
    model = model_of(config)
    prompts = Ragged.from_rows([[], [5, 6, 7], [9] * 17, [4]], np.int32)
    sources = ragged(LENGTHS, rows=np.array([1, 0, 2, 0]), prompts=prompts)
    real = sources.source_padding_mask
    if segments:
        halves = (torch.arange(real.shape[1]) >= 9).long().expand_as(real)
        sources = replace(sources, segment_ids=halves.masked_fill(~real, -1))
    if chosen:
        sources = replace(sources, global_positions=real & (torch.arange(real.shape[1]) % 5 == 0))
    draws = np.random.default_rng(0)
    prefixes = [np.append(IDS.start, prompts[i]) for i in range(4)]
    texts = draws.integers(3, 24, (4, BEAMS, TEXT))
    with torch.no_grad():
        groups = encode_rows(model, sources, IDS.pad)
        cross = CrossCache(groups, sources.encoder_rows, BEAMS, torch.device("cpu"))
        decoder = CachedDecoder(model, cross, prefixes, 18 + TEXT)
        found = []
        starts = torch.tensor([len(prefix) - 1 for prefix in prefixes]).repeat_interleave(BEAMS)
        last = torch.tensor([prefix[-1] for prefix in prefixes]).repeat_interleave(BEAMS)
        for step in range(TEXT):
            found.append(decoder.step(last, starts + step, 17 + step))
            last = torch.from_numpy(texts[:, :, step].ravel())
        for sample in range(4):
            own = alone(sources, sample)
            encoded = model.encode(own.source_ids, None, own.segment_ids, own.global_positions)
            for beam in range(BEAMS):
                ids = torch.from_numpy(np.append(prefixes[sample], texts[sample, beam, :-1]))[None]
                expected = model.logits(model.decode(ids, encoded))[0, len(prefixes[sample]) - 1 :]
                cached = torch.stack([logits[sample * BEAMS + beam] for logits in found])
                assert expected.std() > 0.1
                torch.testing.assert_close(cached, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("positions", POSITIONS, ids=str)
def test_cached_logits_are_those_of_whole_texts_for_all_positions(positions):
    check(with_decoder(positions=positions))


@pytest.mark.parametrize("pattern", PATTERNS, ids=lambda pattern: pattern.pattern)
def test_cached_logits_are_those_of_whole_texts_for_all_patterns(pattern):
    check(with_encoder(pattern), segments=True, chosen=isinstance(pattern, Window))


@pytest.mark.parametrize("name", DECODERS)
def test_cached_logits_are_those_of_whole_texts_for_all_decoders(name):
    check(DECODERS[name])


def test_learned_tokens_of_documents_are_cached_too():
    check(DECODERS["extra tokens"], segments=True)


def test_pooled_encoders_too():
    check(with_encoder(Block(8), pooling=Pooling(1, 6, 4, 3)))


def test_the_cross_cache_does_not_grow_with_beams_or_questions():
    model = model_of(PLAIN)
    few, many = ragged([32, 20]), ragged([32, 20], rows=np.array([0, 1, 0, 0, 1, 1, 0]))
    with torch.no_grad():
        sizes = [
            sum(
                part.untyped_storage().nbytes()
                for group in encode_rows(model, sources, 1)
                for part in group.keys[0][False][:2]
            )
            for sources in (few, many)
        ]
    assert sizes[0] == sizes[1]


def test_only_rows_with_samples_are_encoded():
    groups = encode_rows(model_of(PLAIN), ragged([32, 20, 32], rows=np.array([2, 2])), IDS.pad)
    assert [group.rows.tolist() for group in groups] == [[2]]


def caches(beams=2):
    """A model, and the cache of four samples of three rows of different lengths."""
    model = model_of(PLAIN)
    sources = ragged([32, 5, 20], rows=np.array([1, 0, 2, 0]))
    groups = encode_rows(model, sources, IDS.pad)
    return model, CrossCache(groups, sources.encoder_rows, beams, torch.device("cpu")), sources


def across(attend, crossing, x):
    return _attend_across(0, crossing, attend, x)


@torch.no_grad()
def test_texts_attend_to_the_row_of_their_sample():
    """Against cross-attention of each text alone, to its row without padding."""
    model, cache, sources = caches()
    (crossing,) = model.decoder.layers[0].crossings()
    x = torch.randn(8, 1, 16)
    found = across(cache.attend, crossing, x)
    for sample, row in enumerate(sources.encoder_rows):
        own = slice(2 * sample, 2 * sample + 2)
        length = int(sources.source_padding_mask[row].sum())
        states = model.encode(sources.source_ids[row : row + 1, :length]).states.expand(2, -1, -1)
        expected = crossing.attention(x[own], states)
        torch.testing.assert_close(found[own], expected, atol=1e-5, rtol=1e-5)
        of_sample = partial(cache.attend_alone, sample)
        several = across(of_sample, crossing, x[own].transpose(0, 1)).transpose(0, 1)
        torch.testing.assert_close(several, expected, atol=1e-5, rtol=1e-5)


@torch.no_grad()
@pytest.mark.parametrize("kept", [[0, 3], [1], [2, 3], [0, 1, 2, 3]])
def test_samples_that_are_kept_attend_as_before_and_rows_without_samples_are_freed(kept):
    model, cache, sources = caches()
    (crossing,) = model.decoder.layers[0].crossings()
    x = torch.randn(4, 2, 1, 16)
    before = across(cache.attend, crossing, x.flatten(0, 1)).view(4, 2, 16)
    cache.keep(np.array(kept))
    after = across(cache.attend, crossing, x[kept].flatten(0, 1)).view(len(kept), 2, 16)
    torch.testing.assert_close(after, before[kept], atol=1e-6, rtol=0)
    rows = sorted(row for group in cache.groups for row in group.rows.tolist())
    assert rows == sorted(set(sources.encoder_rows[kept].tolist()))
    assert sum(len(group.keys[0][False].k) for group in cache.groups) == len(rows)


@torch.no_grad()
def test_texts_before_padding_rows_are_not_changed_by_them():
    """The decoder rounds the number of texts up to a multiple of 4."""
    model, cache, _ = caches(beams=1)
    (crossing,) = model.decoder.layers[0].crossings()
    x = torch.randn(4, 1, 16)
    wide = across(cache.attend, crossing, torch.cat([x, torch.full((4, 1, 16), 1e9)]))
    assert wide.shape == (8, 1, 16)
    assert torch.equal(wide[:4], across(cache.attend, crossing, x))
