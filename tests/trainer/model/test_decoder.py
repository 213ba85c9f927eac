"""The decoder's options: cross-attention in chosen layers, and to learned tokens (PEGASUS-X, appendix B.3, table 2)."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from corpora.errors import FarspanError
from tests.trainer.conversion.models import tiny_config
from trainer.metrics import forward_flops
from trainer.model.build import build_model, make_model
from trainer.model.config import DecoderConfig, EncoderConfig, ModelConfig
from trainer.model.layers.heads import HeadsConfig
from trainer.model.layers.sublayers import NormConfig
from trainer.model.patterns.staggered import Staggered
from trainer.model.positions import Sinusoidal
from trainer.parallel.wrapping import apply_activation_checkpointing
from trainer.recipe import load_recipe

VOCAB, EXTRA = 29, 3
CONFIG = tiny_config(
    EncoderConfig(layers=2, positions=Sinusoidal(), attention=Staggered(6, EXTRA)),
    DecoderConfig(layers=3, positions=Sinusoidal()),
    heads=HeadsConfig(count=4, bias=False),
    norm=NormConfig(placement="pre"),
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
    some: Any = build_model(with_decoder(cross_attention=layers), VOCAB, seed=0).eval()
    every: Any = build_model(CONFIG, VOCAB, seed=0).eval()
    left_out = every.load_state_dict(some.state_dict(), strict=False).missing_keys
    absent = [index for index in range(3) if index not in layers]
    assert {int(name.split(".")[2]) for name in left_out} == set(absent)
    assert all(".cross_attention" in name for name in left_out)
    for index in absent:
        torch.nn.init.zeros_(every.decoder.layers[index].cross_attention.out.weight)
    memory = some.encode(ids(SOURCE, 1), REAL)
    torch.testing.assert_close(some.decode(ids(TARGET, 2), memory), every.decode(ids(TARGET, 2), memory))
    assert some.decoder.layers[layers[0]].cross_attention is not None


def attended(module, x, keys, mask=None, causal=False):
    """Attention head by head from its definition, float64."""
    weights = dict(module.named_parameters())
    if causal:
        q, k, v = (x @ part.T for part in weights["qkv.weight"].chunk(3))
    else:
        k, v = (keys @ part.T for part in weights["kv.weight"].chunk(2))
        q = x @ weights["q.weight"].T
    heads = []
    for head in range(4):
        one = slice(4 * head, 4 * head + 4)
        scores = q[..., one] @ k[..., one].transpose(1, 2) / 2  # heads of 4, so a root of 2
        if causal:
            scores = scores.masked_fill(torch.ones(scores.shape[1:]).triu(1).bool(), float("-inf"))
        if mask is not None:
            scores = scores.masked_fill(~mask[:, None], float("-inf"))
        heads.append(scores.softmax(-1) @ v[..., one])
    return torch.cat(heads, -1) @ weights["out.weight"].T


def decoded(model, ids, output):
    """The decoder restated: each sublayer adds to the states what it makes of their norm."""
    decoder = model.decoder
    x = decoder.embedded(model.tokens(ids))
    for layer in decoder.layers:
        x = x + attended(layer.attention, layer.attention_residual.norm(x), None, causal=True)
        if layer.global_cross_attention is not None:
            h = layer.global_cross_attention_residual.norm(x)
            x = x + attended(layer.global_cross_attention, h, output.extra, output.extra_mask)
        if layer.cross_attention is not None:
            h = layer.cross_attention_residual.norm(x)
            x = x + attended(layer.cross_attention, h, output.states, output.padding_mask)
        x = x + layer.feed_forward(layer.feed_forward_residual.norm(x))
    return decoder.norm(x)


@pytest.mark.parametrize("checkpointing", ["none", "selective", "layer"])
@pytest.mark.parametrize("options", [{}, {"cross_attention": (0, 2)}])
@pytest.mark.parametrize("segments", [None, SEGMENTS])
def test_the_published_layer_attends_to_learned_tokens_alone_then_to_the_sequence(segments, options, checkpointing):
    model: Any = build_model(with_decoder(global_cross_attention=True, **options), VOCAB, seed=0).double()
    source, target = ids(SOURCE, 1), ids(TARGET, 2)
    factors = torch.randn(2, TARGET, 16, dtype=torch.float64)

    def learned(decode):
        model.zero_grad()
        output = model.encode(source, REAL, segments)
        sets = 1 if segments is None else 3
        assert output.extra.shape == (2, sets * EXTRA, 16)
        assert output.states.shape == (2, SOURCE, 16)
        hidden = decode(output)
        (hidden * factors).sum().backward()
        return hidden, {name: p.grad for name, p in model.named_parameters() if not name.startswith("output")}

    expected = learned(lambda output: decoded(model, target, output))
    apply_activation_checkpointing(model, checkpointing)
    found = learned(lambda output: model.decode(target, output))
    torch.testing.assert_close(found, expected, atol=1e-12, rtol=1e-12)
    assert all(float(gradient.abs().max()) > 0 for gradient in found[1].values())
    crossing = (0, 1, 2) if not options else (0, 2)
    found = [index for index, layer in enumerate(model.decoder.layers) if layer.global_cross_attention is not None]
    assert found == list(crossing)


def test_the_published_layer_costs_four_projections_and_a_norm():
    def parameters(config):
        return sum(p.numel() for p in make_model(config, VOCAB).parameters())

    tiny = load_recipe("tiny_pegasus_x").model
    more = replace(tiny, decoder=replace(tiny.decoder, global_cross_attention=True))
    width = tiny.width
    assert parameters(more) - parameters(tiny) == tiny.decoder.layers * (4 * width**2 + 2 * width)
    some = replace(more, decoder=replace(more.decoder, cross_attention=(0,)))
    assert parameters(more) - parameters(some) == (tiny.decoder.layers - 1) * 2 * (4 * width**2 + 2 * width)


@pytest.mark.parametrize("real", [None, REAL])
def test_learned_tokens_of_documents_that_a_row_lacks_stay_out_of_sight(real):
    """A row with one document gives the same beside a row with three as alone."""
    model: Any = build_model(with_decoder(global_cross_attention=True), VOCAB, seed=0).eval()
    source, target = ids(SOURCE, 1), ids(TARGET, 2)
    segments = SEGMENTS if real is not None else torch.where(SEGMENTS < 0, 0, SEGMENTS)
    memory = model.encode(source, real, segments)
    assert memory.extra.shape[1] == 3 * EXTRA
    together = model.decode(target, memory)
    for row in range(2):
        one = slice(row, row + 1)
        alone = model.encode(source[one], None if real is None else real[one], segments[one])
        torch.testing.assert_close(together[one], model.decode(target[one], alone), atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"cross_attention": (1,)},
        {"global_cross_attention": True},
        {"global_cross_attention": True, "cross_attention": (0,)},
    ],
)
def test_flops_are_those_that_are_done(options):
    config = with_decoder(**options)
    model: Any = build_model(config, VOCAB, seed=0).eval()
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
