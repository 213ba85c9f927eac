"""Encoders and whole models: documents, padding, pooling, operations; masked language models, alone and joint."""

from dataclasses import replace
from typing import Any, get_args, get_type_hints

import pytest
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from corpora.errors import FarspanError
from objectives.api.examples import IGNORED
from tests.trainer.conversion.models import tiny_config
from tests.trainer.model.dense import PATTERNS
from tests.trainer.toy import toy_recipe
from trainer.metrics import forward_flops
from trainer.model.build import build_model
from trainer.model.config import DecoderConfig, EncoderConfig, ModelConfig
from trainer.model.layers.heads import HeadsConfig
from trainer.model.layers.pooled import Pooling
from trainer.model.layers.sublayers import NormConfig
from trainer.model.loss import CHUNK, LossConfig
from trainer.model.masked_lm import JointModel, MaskedLM
from trainer.model.patterns import Block, Layered, Span, TGlobal, Window
from trainer.model.positions import Buckets, Learned, Rotary

VOCAB, WIDTH = 50, 16

CONFIG = tiny_config(
    EncoderConfig(layers=2, positions=Learned(40), attention=Block(8)), DecoderConfig(layers=2, positions=Learned(12))
)


def pooled(pooling: Pooling, config: ModelConfig = CONFIG) -> ModelConfig:
    return replace(config, encoder=replace(config.encoder, pooling=pooling))


def test_pooling_starts_as_no_pooling_unless_asked():
    ids = torch.randint(0, VOCAB, (2, 24))
    plain = build_model(CONFIG, VOCAB, seed=3).eval()
    zero: Any = build_model(pooled(Pooling(layers=1, kernel=6, stride=4, padding=3)), VOCAB, seed=3).eval()
    drawn = build_model(pooled(Pooling(layers=1, kernel=6, stride=4, padding=3, reference_init=True)), VOCAB, 3).eval()
    assert torch.equal(plain.encode(ids).states, zero.encode(ids).states)
    assert not torch.allclose(plain.encode(ids).states, drawn.encode(ids).states, atol=1e-2)
    zero(ids, ids[:, :5], ids[:, :5]).minimised.backward()
    assert zero.encoder.layers[0].pooling is None
    assert zero.encoder.layers[1].pooling.out.weight.grad.abs().max() > 0  # it can leave zero


SEGMENTS_VOCAB, LENGTH = 40, 29

REAL = torch.arange(LENGTH) < torch.tensor([[29], [21]])

# Documents that begin within blocks, at their edges and with the row's last position.
SEGMENTS = torch.tensor([[0] * 5 + [1] * 11 + [2] * 12 + [3], [0] * 13 + [1] * 8 + [-1] * 8])

GLOBALS = torch.zeros_like(REAL).index_fill_(1, torch.tensor([0, 6, 13, 20]), True)


def packed_states(pattern, ids, pooling):
    """``(2, L, d)`` of three layers with large weights, so that what is mixed shows."""
    positions = Buckets(count=8, distance=9) if pattern.offsets(1) else Learned(LENGTH)
    encoder = EncoderConfig(layers=3, positions=positions, attention=pattern, pooling=pooling)
    model = build_model(tiny_config(encoder, decoder=False), SEGMENTS_VOCAB, seed=0).eval()
    with torch.no_grad():
        return model.encode(ids, REAL, SEGMENTS, GLOBALS if isinstance(pattern, Window) else None)


def cases():
    yield from (pytest.param(pattern, None, id=pattern.pattern) for pattern in PATTERNS)
    pooling = Pooling(layers=2, kernel=6, stride=4, padding=3, reference_init=True)
    yield pytest.param(Block(8), pooling, id="pooled")
    yield pytest.param(Block(8), replace(pooling, reference_padding=True), id="pooled, reference padding")


@pytest.mark.parametrize(("pattern", "pooling"), cases())
def test_no_document_knows_of_another(pattern, pooling):
    torch.manual_seed(0)
    ids = torch.randint(0, SEGMENTS_VOCAB, (2, LENGTH))
    before = packed_states(pattern, ids, pooling)
    for document in range(4):
        inside = torch.eq(SEGMENTS, document)
        changed = torch.where(inside, (ids + torch.randint(1, SEGMENTS_VOCAB, ids.shape)) % SEGMENTS_VOCAB, ids)
        after = packed_states(pattern, changed, pooling)
        torch.testing.assert_close(after[~inside & REAL], before[~inside & REAL], atol=1e-6, rtol=0)
        assert (after[inside] != before[inside]).any(-1).all()


def test_the_law_is_asked_of_every_pattern():
    known = get_args(get_type_hints(EncoderConfig)["attention"])
    assert {type(pattern) for pattern in PATTERNS} == set(known)


FLOPS_VOCAB, FLOPS_LENGTH, FLOPS_WIDTH, INNER = 29, 19, 16, 24


def make(pattern, positions):
    encoder = EncoderConfig(layers=3, positions=positions, attention=pattern)
    config = tiny_config(encoder, decoder=False, heads=HeadsConfig(count=4, width=INNER // 4))
    return config, build_model(config, FLOPS_VOCAB, seed=0).eval()


def counted(model, global_positions=None) -> int:
    """Of logits at all positions of one row."""
    ids = torch.zeros(1, FLOPS_LENGTH, dtype=torch.int64)
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:  # which does not know the others
        model.logits(model.encode(ids, global_positions=global_positions))
    return counter.get_total_flops()


def test_global_positions_cost_their_projections_and_all_pairs():
    config, model = make(Window(4), Learned(FLOPS_LENGTH))
    chosen = torch.zeros(1, FLOPS_LENGTH, dtype=torch.bool)
    chosen[0, [0, 3, 4, 11]] = True
    with_none, with_four = (forward_flops(config, FLOPS_VOCAB, FLOPS_LENGTH, FLOPS_LENGTH, count) for count in (0, 4))
    assert with_four - with_none == counted(model, chosen) - counted(model)


def test_summaries_are_projected_to_keys_and_values():
    pattern = TGlobal(3, 4)
    config, model = make(pattern, Buckets(8, 9))
    attention = 3 * pattern.flops(FLOPS_LENGTH, INNER)  # an operator of ours, which the counter takes for nothing
    # summaries ask nothing: their queries are a by-product of one matrix
    queries = 3 * 2 * FLOPS_WIDTH * INNER * (FLOPS_LENGTH // 4)
    assert forward_flops(config, FLOPS_VOCAB, FLOPS_LENGTH, FLOPS_LENGTH) == counted(model) + attention - queries


@pytest.mark.parametrize("cross", ["each", "merged"])
def test_grouped_heads_and_patterns_of_layers_cost_what_they_compute(cross):
    """Matrix products are counted, attention is that of the patterns: kernels compute more pairs than these."""
    config = replace(
        make(Layered(2, 3, 2), Rotary())[0],
        heads=HeadsConfig(count=4, width=INNER // 4, kv_count=2),
        decoder=DecoderConfig(layers=3, positions=Rotary(), attention=Layered(4, 0, 2, causal=True), cross=cross),
    )
    model: Any = build_model(config, FLOPS_VOCAB, seed=0).eval()
    ids, target = torch.zeros(1, FLOPS_LENGTH, dtype=torch.int64), torch.zeros(1, 7, dtype=torch.int64)
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        model.logits(model.decode(target, model.encode(ids)))
    counts = counter.get_flop_counts()["Global"]
    products = counter.get_total_flops() - counts[torch.ops.aten.bmm]  # which is attention
    spans, full = Span(2, 3).flops(FLOPS_LENGTH, INNER), 4 * FLOPS_LENGTH**2 * INNER
    own = 2 * Span(4, 0).flops(7, INNER) + 2 * 7 * 8 * INNER
    attention = 2 * spans + full + own + 3 * 4 * 7 * FLOPS_LENGTH * INNER
    assert forward_flops(config, FLOPS_VOCAB, FLOPS_LENGTH, 7) == products + attention


PADDED = torch.arange(24) < torch.tensor([[24], [13], [1]])


@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("pooling", [None, Pooling(layers=2, kernel=6, stride=4, padding=3, reference_init=True)])
def test_padding_never_shows(norm, pooling):
    model: Any = build_model(replace(pooled(pooling), norm=NormConfig(placement=norm)), VOCAB, seed=0).eval()
    ids, decoder_ids = torch.randint(0, VOCAB, (3, 24)), torch.randint(0, VOCAB, (3, 5))
    with torch.no_grad():
        together = model.decode(decoder_ids, model.encode(ids, PADDED))
        for row, length in enumerate([24, 13, 1]):
            alone = model.decode(decoder_ids[row : row + 1], model.encode(ids[row : row + 1, :length]))
            torch.testing.assert_close(together[row], alone[0], atol=1e-5, rtol=0)


def test_a_row_of_padding_has_a_finite_loss_and_gradients():
    model = build_model(pooled(Pooling(layers=1, kernel=6, stride=4, padding=3)), VOCAB, seed=0)
    real = torch.arange(24) < torch.tensor([[24], [0]])
    ids, target = torch.randint(0, VOCAB, (2, 24)), torch.randint(0, VOCAB, (2, 5))
    target_labels = target.clone()
    target_labels[1] = IGNORED
    loss = model(ids, target, target_labels, real).minimised
    loss.backward()
    assert loss.isfinite()
    assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())


def test_one_position_and_one_more_than_the_table():
    model = build_model(CONFIG, VOCAB, seed=0)
    assert model.encode(torch.tensor([[3]])).states.shape == (1, 1, WIDTH)
    with pytest.raises(FarspanError, match="41 positions, the model has 40"):
        model.encode(torch.zeros(1, 41, dtype=torch.long))


def test_no_two_tokens_start_alike():
    """Sentinels and other special tokens as little as words: BART-LS starts all its sentinels with one vector."""
    model = build_model(CONFIG, VOCAB, seed=0)
    tables = [weight for weight in model.state_dict().values() if weight.dim() == 2 and len(weight) == VOCAB]
    assert tables
    for table in tables:
        assert len(torch.unique(table, dim=0)) == VOCAB


ENCODER_ALONE = replace(CONFIG, decoder=None)


def test_loss_counts_asked_positions_only():
    model = build_model(ENCODER_ALONE, 50, seed=0)
    assert isinstance(model, MaskedLM)
    model.bias.data.normal_()
    ids = torch.randint(0, 50, (2, 20))
    labels = torch.full((2, 20), IGNORED)
    labels[0, 1], labels[0, 7], labels[1, 19] = 3, 4, 5
    spoken = model.logits(model.encode(ids)).log_softmax(-1)
    expected = -(spoken[0, 1, 3] + spoken[0, 7, 4] + spoken[1, 19, 5])
    torch.testing.assert_close(model(ids, labels).minimised, expected, atol=1e-4, rtol=1e-5)


def test_nothing_asked_is_a_loss_of_zero_with_zero_gradients():
    model = build_model(ENCODER_ALONE, 50, seed=0)
    loss = model(torch.randint(0, 50, (1, 9)), torch.full((1, 9), IGNORED)).minimised
    loss.backward()
    assert loss.item() == 0
    assert all(p.grad is None or (p.grad == 0).all() for p in model.parameters())


JOINT_VOCAB, WEIGHT = 30, 0.4


@pytest.fixture
def parts():
    config = replace(toy_recipe("unused", dropout=0.0).model, init_std=0.3)
    generator = replace(config, decoder=None, width=8)
    return build_model(config, JOINT_VOCAB, seed=0), build_model(generator, JOINT_VOCAB + 2, seed=1)


@pytest.fixture
def batch():
    torch.manual_seed(0)
    ids, target, shown = (torch.randint(0, JOINT_VOCAB, (2, width)) for width in (16, 8, 24))
    labels = torch.where(torch.rand(2, 24) < 0.3, shown, IGNORED)
    return {
        "source_ids": ids, "decoder_ids": target, "labels": target, "candidate_ids": shown,
        "candidate_padding_mask": torch.arange(24) < torch.tensor([[24], [20]]), "candidate_labels": labels,
        "target_counts": torch.tensor([40, 30]),
    }  # fmt: skip


def split(batch):
    own = {name: value for name, value in batch.items() if not name.startswith(("candidate", "target_counts"))}
    generator = {"source_ids": batch["candidate_ids"], "source_padding_mask": batch["candidate_padding_mask"]}
    return own, {**generator, "labels": batch["candidate_labels"]}


@pytest.mark.parametrize("loss", [LossConfig(), LossConfig(label_smoothing=0.1, z_loss=0.01)])
def test_the_loss_is_that_of_both_by_their_means(parts, batch, loss):
    model, generator = parts
    own, shown = split(batch)
    alone, beside = (part(**inputs, loss=loss) for part, inputs in ((model, own), (generator, shown)))
    mean = alone.minimised / 40 + WEIGHT * beside.minimised / 30
    expected = torch.autograd.grad(mean, [*model.parameters(), *generator.parameters()], materialize_grads=True)
    losses = JointModel(model, generator, WEIGHT)(**batch, loss=loss)
    torch.testing.assert_close(losses.minimised / 40, mean)
    torch.testing.assert_close(losses.plain, alone.plain)
    found = torch.autograd.grad(losses.minimised / 40, [*model.parameters(), *generator.parameters()],
                                materialize_grads=True)  # fmt: skip
    torch.testing.assert_close(found, expected)


def test_held_out_batches_ask_nothing_of_the_generator(parts, batch):
    model, generator = parts
    own, _ = split(batch)
    torch.testing.assert_close(JointModel(model, generator, WEIGHT)(**own), model(**own))


def test_names_of_parameters_are_those_of_the_parts(parts):
    model, generator = parts
    names = {*model.state_dict(), *(f"generator.{name}" for name in generator.state_dict())}
    assert set(JointModel(model, generator, WEIGHT).state_dict()) == names


@pytest.mark.parametrize("chunk", [1, 5, CHUNK])
def test_scores_are_the_losses_of_the_asked_tokens(parts, batch, chunk, monkeypatch):
    monkeypatch.setattr("trainer.model.masked_lm.CHUNK", chunk)
    model, generator = parts
    assert isinstance(generator, MaskedLM)
    ids, real, labels = (batch[f"candidate_{name}"] for name in ("ids", "padding_mask", "labels"))
    scores = JointModel(model, generator, WEIGHT).score(ids, real, labels)
    logits = generator.logits(generator.encode(ids, real))
    expected = F.cross_entropy(logits.transpose(1, 2), labels, ignore_index=IGNORED, reduction="none")
    torch.testing.assert_close(scores, expected)
    assert scores.dtype == torch.float32
    torch.testing.assert_close(scores.sum(), generator(ids, labels, real).plain)


def test_nothing_asked_is_no_score_and_no_loss(parts, batch):
    joint = JointModel(*(*parts, WEIGHT))
    nothing = torch.full_like(batch["candidate_labels"], IGNORED)
    assert not joint.score(batch["candidate_ids"], batch["candidate_padding_mask"], nothing).any()
    own, _ = split(batch)
    empty = joint(**batch | {"candidate_labels": nothing, "target_counts": torch.tensor([40, 0])})
    torch.testing.assert_close(empty, parts[0](**own))
