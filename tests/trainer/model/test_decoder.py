"""The decoder's options: cross-attention in chosen layers, and to learned tokens (PEGASUS-X, appendix B.3, table 2)."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from corpora.errors import FarspanError
from trainer.model.build import build_model
from trainer.model.config import DecoderConfig, EncoderConfig, ModelConfig
from trainer.model.context import make_context
from trainer.model.decoder import EncoderOutput
from trainer.model.flops import forward_flops
from trainer.model.layers.heads import HeadsConfig
from trainer.model.layers.sublayers import FeedForwardConfig, NormConfig
from trainer.model.patterns.staggered import Staggered
from trainer.model.positions.absolute import Sinusoidal

VOCAB, EXTRA = 29, 3
CONFIG = ModelConfig(
    width=16,
    heads=HeadsConfig(count=4, bias=False),
    feed_forward=FeedForwardConfig(width=24),
    norm=NormConfig(placement="pre"),
    dropout=0.0,
    init_std=0.3,  # large enough that every part of the model shows in the output
    encoder=EncoderConfig(layers=2, positions=Sinusoidal(), attention=Staggered(6, EXTRA)),
    decoder=DecoderConfig(layers=3, positions=Sinusoidal()),
)
SOURCE, TARGET = 11, 5
REAL = torch.arange(SOURCE) < torch.tensor([[SOURCE], [4]])
SEGMENTS = torch.tensor([[0, 0, 0, 1, 1, 1, 1, 1, 2, 2, 2], [0, 0, 0, 0, -1, -1, -1, -1, -1, -1, -1]])


def with_decoder(**options) -> ModelConfig:
    assert CONFIG.decoder
    return replace(CONFIG, decoder=replace(CONFIG.decoder, **options))


def ids(length: int, seed: int) -> torch.Tensor:
    return torch.randint(0, VOCAB, (2, length), generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("layers", [(0,), (2,), (0, 2)])
def test_a_layer_without_cross_attention_is_one_that_adds_nothing(layers):
    some = build_model(with_decoder(cross_attention=layers), VOCAB, seed=0).eval()
    every = build_model(CONFIG, VOCAB, seed=0).eval()
    left_out = every.load_state_dict(some.state_dict(), strict=False).missing_keys
    absent = [index for index in range(3) if index not in layers]
    assert {int(name.split(".")[2]) for name in left_out} == set(absent)
    assert all(".cross_attention" in name for name in left_out)
    for index in absent:
        torch.nn.init.zeros_(every.decoder.layers[index].cross_attention.out.weight)
    memory = some.encode(ids(SOURCE, 1), REAL)
    torch.testing.assert_close(some.decode(ids(TARGET, 2), memory), every.decode(ids(TARGET, 2), memory))
    assert some.decoder.layers[layers[0]].cross_attention is not None


def test_the_decoder_sees_learned_tokens_where_asked():
    shown = build_model(with_decoder(cross_attends_globals=True), VOCAB, seed=0).eval()
    hidden = build_model(CONFIG, VOCAB, seed=0).eval()  # the same weights
    source, target = ids(SOURCE, 1), ids(TARGET, 2)
    states, extra = hidden.encoder(hidden.tokens(source), make_context(REAL))
    assert extra.shape == (2, EXTRA, 16)
    by_hand = EncoderOutput(torch.cat([extra, states], 1), torch.cat([torch.ones(2, EXTRA, dtype=torch.bool), REAL], 1))
    found = shown.decode(target, shown.encode(source, REAL))
    torch.testing.assert_close(found, hidden.decode(target, by_hand))
    assert not torch.allclose(found, hidden.decode(target, hidden.encode(source, REAL)), atol=1e-2)
    assert shown.encode(source).padding_mask is None  # no mask where nothing is padded


@pytest.mark.parametrize("real", [None, REAL])
def test_learned_tokens_of_documents_that_a_row_lacks_stay_out_of_sight(real):
    """A row with one document gives the same beside a row with three as alone."""
    model = build_model(with_decoder(cross_attends_globals=True), VOCAB, seed=0).eval()
    source, target = ids(SOURCE, 1), ids(TARGET, 2)
    segments = SEGMENTS if real is not None else torch.where(SEGMENTS < 0, 0, SEGMENTS)
    memory = model.encode(source, real, segments)
    assert memory.states.shape[1] == 3 * EXTRA + SOURCE
    together = model.decode(target, memory)
    for row in range(2):
        one = slice(row, row + 1)
        alone = model.encode(source[one], None if real is None else real[one], segments[one])
        torch.testing.assert_close(together[one], model.decode(target[one], alone), atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    "options", [{}, {"cross_attention": (1,)}, {"cross_attends_globals": True}, {"layers": 1, "cross_attention": (0,)}]
)
def test_flops_are_those_that_are_done(options):
    config = with_decoder(**options)
    model = build_model(config, VOCAB, seed=0).eval()
    source, target = ids(SOURCE, 1)[:1], ids(TARGET, 2)[:1]
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:  # which does not know the others
        model.logits(model.decode(target, model.encode(source)))
    # that backend computes the pairs that a causal mask hides, too
    hidden_pairs = TARGET * (TARGET - 1) // 2 * config.decoder.layers
    assert counter.get_total_flops() - 4 * hidden_pairs * 16 == forward_flops(config, VOCAB, SOURCE, TARGET)


@pytest.mark.parametrize("layers", [(), (3,), (-1, 0)])
def test_cross_attention_in_no_layer_or_in_one_that_does_not_exist_is_refused(layers):
    with pytest.raises(FarspanError, match="counted from 0 to 2"):
        with_decoder(cross_attention=layers)
