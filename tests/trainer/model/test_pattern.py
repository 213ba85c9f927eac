"""The base class: what all patterns have in common, and a pattern with no more than it must have."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, dataclass, fields, replace
from typing import get_args, get_type_hints

import pytest
import torch

from tests.trainer.conversion.models import tiny_config
from tests.trainer.model.dense import HEADS, WIDTH, assert_equals_dense
from trainer.model.build import build_model
from trainer.model.config import EncoderConfig
from trainer.model.context import make_context
from trainer.model.kernels.varlen import rows_of
from trainer.model.layers.attention import SelfAttention, attend, visible
from trainer.model.pattern import Pattern
from trainer.model.positions import Learned

PATTERNS = get_args(get_type_hints(EncoderConfig)["attention"])


@dataclass(frozen=True)
class Parity(Pattern):
    """Even positions attend to even ones, odd ones to odd ones."""

    pattern: str = "parity"

    def layer(self, width, heads, norm, dropout):
        return SelfAttention(width, heads, self, dropout)

    def attend(self, q, k, v, context, dropout=0.0, scale=None):
        places = torch.arange(q.shape[1])
        seen = self.mask_mod(places[:, None], places, q.shape[1])
        known = visible(context.padding_mask, context.segments, context.segments)
        return attend(q, k, v, seen[None] if known is None else seen & known, dropout=dropout, scale=scale)

    def mask_mod(self, query, key, length):
        return query % 2 == key % 2

    def flops(self, length, width):
        return 2 * length * length * width


@pytest.mark.parametrize("packed", [False, True])
def test_a_pattern_of_ones_own_needs_the_abstract_methods_alone(packed):
    segments = torch.tensor([[0] * 4 + [1] * 5, [0] * 9]) if packed else None
    assert_equals_dense(Parity(), 9, [9, 6], 0, segments)
    encoder = EncoderConfig(layers=2, positions=Learned(16))
    object.__setattr__(encoder, "attention", Parity())  # recipes know the patterns of the package
    model = build_model(replace(tiny_config(), encoder=encoder), 24, seed=0)
    ids = torch.arange(9)[None]
    before = model.encode(ids).states
    ids[0, 4] = 20
    changed = (model.encode(ids).states != before).any(-1)[0]
    assert changed.tolist() == [True, False] * 4 + [True]


def test_defaults_are_those_of_a_pattern_without_tokens_side_keys_and_weights():
    pattern, context = Parity(), make_context()
    assert pattern.at(3) is pattern
    assert (pattern.extra_tokens, pattern.extra_flops(9, 8, 8, 0), pattern.offsets(9)) == (0, 0, ())
    assert pattern.plan(rows_of(context, 1, 9, torch.device("cpu"))) is None
    assert pattern.side_documents(context, 9) is pattern.score_mod((), None) is None
    assert not any((pattern.uses_flex, pattern.takes_global_positions, pattern.optional_weights))
    pattern.check(1)


def test_an_abstract_method_cannot_be_left_out():
    class Half(Pattern):
        def flops(self, length, width):
            return 0

    with pytest.raises(TypeError, match=r"abstract methods? .*attend.*layer.*mask_mod"):
        Half()


@pytest.mark.parametrize("kind", PATTERNS, ids=lambda kind: kind.__name__)
def test_every_pattern_is_a_frozen_table_of_a_recipe_with_a_name_of_its_own(kind):
    pattern = kind()
    (name,) = get_args(get_type_hints(kind)["pattern"])
    assert pattern.pattern == name
    assert [other.pattern for other in PATTERNS].count(name) == 1
    with pytest.raises(FrozenInstanceError):
        setattr(pattern, fields(pattern)[0].name, None)
    assert replace(pattern) == pattern
    assert hash(replace(pattern)) == hash(pattern)


@pytest.mark.parametrize("kind", PATTERNS, ids=lambda kind: kind.__name__)
def test_offsets_have_the_shape_of_the_biases_that_attention_takes(kind):
    pattern, length = kind(), 12
    for part in pattern.offsets(length):
        assert part.dtype == torch.int64
    if len(pattern.offsets(length)) == 1 and not pattern.extra_tokens:
        biases = tuple(torch.randn(HEADS, *part.shape) for part in pattern.offsets(length))
        q, k, v = torch.randn(3, 1, length, HEADS, WIDTH)
        assert pattern.attend(q, k, v, make_context()._replace(biases=biases)).shape == q.shape
