"""Learned global tokens in an encoder that had none: what they begin as, and how far the model is the short one."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
import torch

from corpora.errors import FarspanError
from objectives.api.special_tokens import SpecialTokens
from trainer.conversion.adapt import sample_globals
from trainer.conversion.vocabulary import Vocabulary
from trainer.model.build import build_model, make_model
from trainer.model.config import DecoderConfig, EncoderConfig, ModelConfig
from trainer.model.context import Context
from trainer.model.layers.attention import attend
from trainer.model.layers.heads import HeadsConfig
from trainer.model.layers.sublayers import FeedForwardConfig, NormConfig
from trainer.model.patterns.full import Full
from trainer.model.patterns.staggered import Staggered
from trainer.model.positions import Sinusoidal

VOCAB, EXTRA, SIZE = 31, 4, 12
KNOWN = Vocabulary(SpecialTokens({"<pad>": 0, "<bos>": 2, "<eos>": 1}, VOCAB), tokenizer_size=VOCAB)
TABLE = torch.randn(VOCAB, 8, generator=torch.Generator().manual_seed(0))
SHORT = ModelConfig(
    width=16,
    heads=HeadsConfig(count=4),
    feed_forward=FeedForwardConfig(width=24),
    norm=NormConfig(placement="pre"),
    dropout=0.0,
    init_std=0.3,
    encoder=EncoderConfig(layers=3, positions=Sinusoidal(), attention=Full()),
    decoder=DecoderConfig(layers=1, positions=Sinusoidal()),
)


@dataclass(frozen=True)
class OutOfSight(Staggered):
    """The same pattern, but positions do not see learned tokens."""

    def attend(self, q, k, v, context, dropout=0.0, scale=None):
        places = torch.arange(q.shape[1])
        seen = self.mask_mod(places[:, None], places, q.shape[1] - EXTRA)
        seen &= (places[:, None] < EXTRA) | (places >= EXTRA)
        return attend(q, k, v, seen[None], scale=scale)


def test_rows_of_words_are_drawn_by_id_and_seed():
    drawn = sample_globals(TABLE, 12, KNOWN, seed=3)
    rows = [int((row == TABLE).all(1).nonzero()) for row in drawn]
    assert len(set(rows)) == 12
    assert not set(rows) & set(KNOWN.special.ids.values())
    assert torch.equal(sample_globals(TABLE, 5, KNOWN, seed=3), drawn[:5])
    assert not torch.equal(sample_globals(TABLE, 12, KNOWN, seed=4), drawn)
    assert len(sample_globals(TABLE, VOCAB - 3, KNOWN, seed=0)) == VOCAB - 3


def test_rows_that_no_token_has_are_never_drawn():
    padded = replace(KNOWN, tokenizer_size=20)  # a table is often wider than its tokenizer
    drawn = sample_globals(TABLE, 17, padded, seed=3)
    assert {int((row == TABLE).all(1).nonzero()) for row in drawn} == set(range(3, 20))
    with pytest.raises(FarspanError, match="global_tokens is 18, but the token table has 17 text tokens"):
        sample_globals(TABLE, 18, padded, seed=3)


def test_more_tokens_than_words_are_refused():
    with pytest.raises(FarspanError, match="global_tokens is 29, but the token table has 28 text tokens"):
        sample_globals(TABLE, 29, KNOWN, seed=0)


def adapted(pattern: Staggered):
    """A short model, and the long one that it becomes."""
    torch.manual_seed(0)
    short = build_model(SHORT, VOCAB, seed=0).eval()
    state = {name: x + 0.1 * torch.randn_like(x) for name, x in short.state_dict().items()}
    short.load_state_dict(state)
    long = make_model(replace(SHORT, encoder=replace(SHORT.encoder, attention=pattern)), VOCAB).eval()
    state["encoder.extra"] = sample_globals(state["tokens.weight"], EXTRA, KNOWN, seed=0)
    for name in long.state_dict().keys() - state.keys():
        state[name] = state[name.replace(".norm.extra.", ".norm.").replace(".norm.tokens.", ".norm.")]
    long.load_state_dict({name: state[name] for name in long.state_dict()})
    return short, long


def difference(short, long, length: int) -> float:
    source, target = (torch.randint(3, VOCAB, (2, n), generator=torch.Generator().manual_seed(n)) for n in (length, 5))
    one, other = (model.logits(model.decode(target, model.encode(source))) for model in (short, long))
    return (one - other).abs().max().item()


@pytest.mark.parametrize(("staggered", "reach"), [(True, SIZE // 2), (False, SIZE)])
def test_with_learned_tokens_out_of_sight_the_model_is_the_short_one_within_its_reach(staggered, reach):
    short, long = adapted(OutOfSight(SIZE, EXTRA, staggered))
    assert max(difference(short, long, length) for length in (1, 3, reach)) < 1e-5
    assert difference(short, long, reach + 1) > 1e-3  # the first edge
    _, seen = adapted(Staggered(SIZE, EXTRA, staggered))
    assert difference(short, seen, reach) > 1e-3  # why this can be no law of the adapted model itself


@pytest.mark.parametrize("layer", [0, 1])
def test_learned_tokens_take_a_share_and_leave_the_rest_as_it_was(layer):
    torch.manual_seed(0)
    length = SIZE // 2
    q, k, v = torch.randn(3, 2, EXTRA + length, 3, 8)
    weights = (torch.einsum("bqhd,bkhd->bqhk", q, k) / 8**0.5).softmax(-1)[:, EXTRA:]
    share = weights[..., :EXTRA].sum(-1, keepdim=True)  # (B, L, H, 1)
    learned = torch.einsum("bqhg,bghd->bqhd", weights[..., :EXTRA], v[:, :EXTRA]) / share
    short = Full().attend(q[:, EXTRA:], k[:, EXTRA:], v[:, EXTRA:], Context())
    found = Staggered(SIZE, EXTRA).at(layer).attend(q, k, v, Context())[:, EXTRA:]
    torch.testing.assert_close(found, (1 - share) * short + share * learned, atol=1e-5, rtol=0)
    # where all scores are alike, the share is that of the keys
    marked = torch.zeros_like(v)
    marked[:, :EXTRA] = 1.0
    alike = Staggered(SIZE, EXTRA).at(layer).attend(q, torch.zeros_like(k), marked, Context())[:, EXTRA:]
    torch.testing.assert_close(alike, torch.full_like(alike, EXTRA / (EXTRA + length)))
