"""Packed rows: several examples in a row of encoder and decoder, each with the result that it has alone."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from objectives.api.examples import IGNORED
from tests.trainer.conversion.models import tiny_config
from tests.trainer.model.dense import PATTERNS
from trainer.model.build import build_model
from trainer.model.config import DecoderConfig, EncoderConfig, ModelConfig
from trainer.model.context import make_context
from trainer.model.kernels import flex
from trainer.model.layers.attention import Causal
from trainer.model.layers.heads import HeadsConfig
from trainer.model.pattern import Pattern
from trainer.model.patterns import Full, Layered, Span, Staggered, TGlobal
from trainer.model.patterns.merged import Merged
from trainer.model.positions import Buckets, Learned, NoPositions, Rotary, Sinusoidal

VOCAB, WIDTH, TARGETS = 31, 48, 24
ROWS = [[(13, 5), (1, 1), (16, 7)], [(24, 9), (2, 4)]]  # source and target lengths of the examples of each row

ENCODERS = [
    *(EncoderConfig(layers=2, positions=Learned(WIDTH), attention=pattern) for pattern in PATTERNS if pattern.unit),
    EncoderConfig(layers=2, positions=Rotary(local_theta=100.0), attention=Layered(2, 3, 2)),
    *(EncoderConfig(layers=2, positions=Rotary(), attention=pattern) for pattern in (Full(), TGlobal(3, 4))),
    *(
        EncoderConfig(layers=2, positions=Buckets(count=8, distance=12), attention=pattern)
        for pattern in PATTERNS
        if pattern.offsets(1)
    ),
    EncoderConfig(layers=2, positions=Sinusoidal(), attention=Staggered(8, 3, staggered=False)),
    EncoderConfig(layers=2, positions=NoPositions(), attention=Full()),
]
DECODERS = [
    DecoderConfig(layers=2, positions=Learned(TARGETS)),
    DecoderConfig(layers=2, positions=Sinusoidal()),
    DecoderConfig(layers=2, positions=Buckets(count=8, distance=12)),
    DecoderConfig(layers=2, positions=Rotary(local_theta=100.0), attention=Layered(3, 0, 2, causal=True)),
    DecoderConfig(layers=2, positions=Rotary(), attention=Span(2, 0)),
    DecoderConfig(layers=2, positions=Rotary(), cross="merged"),
    DecoderConfig(layers=2, positions=Rotary(), cross="merged", attention=Layered(3, 0, 2, causal=True)),
]


def make_rows(unit: int) -> tuple[dict[str, torch.Tensor], list[dict[str, torch.Tensor]]]:
    """Packed inputs of ``ROWS``, sources beginning at multiples of ``unit``, and those of each example alone.

    The first position of every source is global.
    """
    torch.manual_seed(0)
    pad = {"source_ids": 0, "decoder_ids": 0, "labels": IGNORED, "segment_ids": -1, "target_segment_ids": -1}
    packed = {name: torch.full((2, WIDTH if "s" in name[:2] else TARGETS), value) for name, value in pad.items()}
    packed["global_positions"] = torch.zeros(2, WIDTH, dtype=torch.bool)
    alone = []
    for row, examples in enumerate(ROWS):
        begin = first = 0
        for number, (source, target) in enumerate(examples):
            ids, shifted, labels = (torch.randint(VOCAB, (1, size)) for size in (source, target, target))
            chosen = torch.arange(source)[None] == 0
            alone.append({"source_ids": ids, "decoder_ids": shifted, "labels": labels, "global_positions": chosen})
            own = torch.tensor(number)
            inside, written = slice(begin, begin + source), slice(first, first + target)
            for name, value in {**alone[-1], "segment_ids": own, "target_segment_ids": own}.items():
                packed[name][row, inside if packed[name].shape[1] == WIDTH else written] = value
            begin, first = -(-inside.stop // unit) * unit, written.stop
    packed["source_padding_mask"] = packed["segment_ids"] >= 0
    return packed, alone


def check(config: ModelConfig, atol: float = 1e-5) -> None:
    """Compare logits, losses and gradients of packed rows with those of each example alone."""
    pattern = config.encoder.attention
    packed, alone = make_rows(pattern.unit)
    if not pattern.takes_global_positions:
        for inputs in (packed, *alone):
            del inputs["global_positions"]
    model: Any = build_model(config, VOCAB, seed=0)
    sources = [model.encode(inputs["source_ids"], global_positions=inputs.get("global_positions")) for inputs in alone]
    expected = [
        model.logits(model.decode(inputs["decoder_ids"], states)) for inputs, states in zip(alone, sources, strict=True)
    ]
    seen = []
    model.decoder.norm.register_forward_hook(lambda _, __, states: seen.append(states))
    loss = model(**packed).minimised
    own = model.logits(seen[0])
    kept = [
        own[row, packed["target_segment_ids"][row] == number][None]
        for row, examples in enumerate(ROWS)
        for number in range(len(examples))
    ]
    for one, other in zip(kept, expected, strict=True):
        torch.testing.assert_close(one, other, atol=atol, rtol=0)
    parts = [
        F.cross_entropy(logits[0], inputs["labels"][0], reduction="sum")
        for logits, inputs in zip(expected, alone, strict=True)
    ]
    torch.testing.assert_close(loss, torch.stack(parts).sum(), atol=1e-4, rtol=1e-6)
    names, weights = zip(*model.named_parameters(), strict=True)
    found, wanted = (torch.autograd.grad(x, weights, allow_unused=True) for x in (loss, torch.stack(parts).sum()))
    for name, one, other in zip(names, found, wanted, strict=True):
        assert (one is None) == (other is None), name
        if one is not None:
            torch.testing.assert_close(one, other, atol=1e-4 * max(1.0, float(other.abs().max())), rtol=1e-4, msg=name)


@pytest.mark.parametrize("encoder", ENCODERS, ids=lambda e: f"{e.attention.pattern}-{e.positions.scheme}")
def test_an_example_of_a_packed_row_has_its_own_result(encoder):
    check(tiny_config(encoder, DECODERS[0]))


@pytest.mark.parametrize("decoder", DECODERS, ids=lambda d: f"{d.positions.scheme}-{d.cross}")
def test_decoders_attend_within_an_example(decoder):
    check(tiny_config(ENCODERS[0], decoder))


def test_learned_tokens_of_other_examples_are_not_attended_to():
    decoder = DecoderConfig(layers=2, positions=Sinusoidal(), global_cross_attention=True)
    check(tiny_config(EncoderConfig(layers=2, positions=Sinusoidal(), attention=Staggered(8, 3)), decoder))


def test_grouped_heads_and_no_first_example_differ_from_others():
    check(tiny_config(ENCODERS[0], DECODERS[5], heads=HeadsConfig(count=2, kv_count=1, norm_eps=1e-6)))


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@pytest.mark.parametrize("pattern", [TGlobal(3, 4), Span(4, 3), Merged(Causal())], ids=lambda p: p.pattern)
def test_the_kernel_for_gpus_attends_within_an_example(pattern: Pattern):
    packed, _ = make_rows(pattern.unit)
    sources, targets = packed["segment_ids"], packed["target_segment_ids"]
    if isinstance(pattern, Merged):
        context = make_context(segments=targets, packed=True)
        context = context._replace(side_mask=packed["source_padding_mask"], side_segments=sources)
        length, sides = TARGETS, WIDTH
    else:
        context = make_context(packed["source_padding_mask"], sources, packed=True)
        length, sides = WIDTH, WIDTH // 4 if isinstance(pattern, TGlobal) else 0
        context = context._replace(biases=tuple(torch.randn(2, *part.shape) for part in pattern.offsets(WIDTH)))
    q, k, v = (torch.randn(2, count, 2, 16) for count in (length, length + sides, length + sides))
    found, expected = flex.attend(pattern, q, k, v, context), pattern.attend(q, k, v, context)
    real = (targets if isinstance(pattern, Merged) else sources) >= 0
    torch.testing.assert_close(found[real], expected[real], atol=1e-5, rtol=1e-5)
