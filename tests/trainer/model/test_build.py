"""Tests of configurations and of models before training."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch

from corpora.errors import FarspanError
from tests.trainer.conversion.models import tiny_config
from trainer.metrics import forward_flops
from trainer.model.build import build_model
from trainer.model.config import DecoderConfig, EncoderConfig, ModelConfig, OutputConfig
from trainer.model.layers.heads import HeadsConfig
from trainer.model.layers.pooled import Pooling
from trainer.model.layers.sublayers import EmbeddingConfig, FeedForwardConfig, NormConfig
from trainer.model.patterns import Block, Full, Local, Staggered, TGlobal, Window
from trainer.model.positions import Buckets, Learned, Sinusoidal
from trainer.recipe import load_recipe
from trainer.recipe_files import list_recipes

ENCODER = EncoderConfig(layers=2, positions=Learned(8))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"heads": HeadsConfig(count=3)}, "model.heads.count is 3 and does not divide model.width 8"),
        ({"width": 0}, "model.width is 0"),
        ({"dropout": 1.0}, "model.dropout is 1.0"),
        ({"attention_dropout": -0.1}, "model.attention_dropout"),
        ({"init_std": 0.0}, "model.init_std"),
        ({"init_std": math.inf}, "model.init_std is inf"),
        (
            {"width": 9, "heads": HeadsConfig(count=3), "encoder": EncoderConfig(layers=1, positions=Sinusoidal())},
            "model.encoder.positions are sinusoidal, half sines, half cosines, but model.width is 9",
        ),
        (
            {"decoder": DecoderConfig(layers=1, positions=Learned(8), global_cross_attention=True)},
            "global_cross_attention is set, but the encoder's pattern 'block' has no learned tokens",
        ),
    ],
)
def test_bad_models_are_refused(options, said):
    with pytest.raises(FarspanError, match=said):
        tiny_config(**{"encoder": ENCODER, "decoder": False, "width": 8, "heads": HeadsConfig(count=2), **options})


def test_bad_stacks_are_refused():
    with pytest.raises(FarspanError, match=r"learned positions: count is 0"):
        EncoderConfig(layers=2, positions=Learned(0))
    with pytest.raises(FarspanError, match=r"pooling.layers is 4, but model.encoder.layers is 2"):
        EncoderConfig(layers=2, positions=Learned(8), pooling=Pooling())
    with pytest.raises(FarspanError, match=r"pooling cannot be used with the pattern 'staggered'"):
        EncoderConfig(layers=4, positions=Learned(8), attention=Staggered(), pooling=Pooling())
    with pytest.raises(FarspanError, match=r"positions are relative, which the pattern 'window' does not support"):
        EncoderConfig(layers=2, positions=Buckets(), attention=Window())
    with pytest.raises(FarspanError, match=r"attention.shifted is true.*leave it out"):
        EncoderConfig(layers=2, positions=Learned(8), attention=Staggered(shifted=True))
    with pytest.raises(FarspanError, match=r"model.decoder.layers is 0"):
        DecoderConfig(layers=0, positions=Learned(8))


def test_forward_of_the_large_model_costs_what_was_counted_by_hand():
    large = ModelConfig(
        width=1024,
        heads=HeadsConfig(count=16),
        feed_forward=FeedForwardConfig(width=4096),
        encoder=EncoderConfig(layers=12, positions=Learned(16_384), attention=Block(1024), pooling=Pooling()),
        decoder=DecoderConfig(layers=12, positions=Learned(1024)),
    )
    tera = forward_flops(large, 50_265, 16_384, 1024) / 1e12
    assert tera == pytest.approx(4.95 + 0.82 + 0.66 + 0.36 + 0.82 + 0.82 + 0.11 + 0.03, abs=0.03)


WIDTH, HEADS, HEAD_WIDTH, INNER, VOCAB = 64, 5, 24, 160, 300

CONFIG = ModelConfig(
    width=WIDTH,
    heads=HeadsConfig(count=HEADS, width=HEAD_WIDTH, bias=False, scaled=False),
    feed_forward=FeedForwardConfig(width=INNER, activation="gelu_tanh", gated=True, bias=False),
    norm=NormConfig(placement="pre", kind="rms", eps=1e-6),
    embedding=EmbeddingConfig(norm=False),
    output=OutputConfig(tied=False),
    encoder=EncoderConfig(layers=1, positions=Buckets(256, 512), attention=TGlobal(3, 4)),
    decoder=DecoderConfig(layers=1, positions=Buckets(256, 512)),
    initialisation="t5",
)


def test_initial_weights_are_those_of_t5():
    """Standard deviations, and bounds where the published distribution has them."""
    weights = dict(build_model(CONFIG, VOCAB, seed=0).named_parameters())
    heads, d, queries = HEADS * HEAD_WIDTH, WIDTH**-0.5, (WIDTH * HEAD_WIDTH) ** -0.5
    relative = (2 / (HEADS + 256)) ** 0.5
    expected = {
        "tokens.weight": 1.0,
        "encoder.biases.0.weight": relative,
        "encoder.biases.1.weight": relative,
        "decoder.bias.weight": relative,
        "output.weight": d,
        "decoder.layers.0.cross_attention.q.weight": queries,
        "decoder.layers.0.cross_attention.kv.weight": d,
        "decoder.layers.0.cross_attention.out.weight": heads**-0.5,
    }
    for layer in ("encoder.layers.0", "decoder.layers.0"):
        expected |= {
            f"{layer}.attention.out.weight": heads**-0.5,
            f"{layer}.feed_forward.up.weight": d,
            f"{layer}.feed_forward.gate.weight": d,
            f"{layer}.feed_forward.down.weight": INNER**-0.5,
        }
        q, k, v = weights.pop(f"{layer}.attention.qkv.weight").chunk(3)
        for part, std in ((q, queries), (k, d), (v, d)):
            assert part.std().item() == pytest.approx(std, rel=0.05)
    for name, std in expected.items():
        weight = weights.pop(name)
        assert weight.std().item() == pytest.approx(std, rel=0.08), name
        farthest = weight.abs().max().item() / std
        if "bias" in name:
            assert farthest <= 3**0.5, "uniform"
        elif name == "output.weight" or "feed_forward" in name:
            assert 2.0 < farthest <= 2 / 0.8796, "truncated at two standard deviations"
        else:
            assert farthest > 2.6, "normal"
    assert all((weight == 1).all() for weight in weights.values()), "norms, and nothing else, are left"


def test_tables_of_several_layers_begin_like_one():
    positions = Buckets(256, 512, per_layer=True)
    encoder = EncoderConfig(layers=5, positions=positions, attention=Full())
    config = replace(CONFIG, encoder=encoder, decoder=DecoderConfig(layers=3, positions=positions))
    model = build_model(config, VOCAB, seed=0)
    for stack, layers in (("encoder", 5), ("decoder", 3)):
        weight = next(p for name, p in model.named_parameters() if name.startswith(stack) and "bias" in name)
        assert weight.shape == (layers * 256, HEADS)
        assert weight.std().item() == pytest.approx((2 / (HEADS + 256)) ** 0.5, rel=0.05)


@pytest.mark.parametrize(
    "changes",
    [
        {"output": OutputConfig(tied=False)},
        {"output": OutputConfig(tied=True, scaled=True)},
        {"output": OutputConfig(tied=True)},
        {"decoder": None},
    ],
)
def test_logits_begin_at_unit_variance_whatever_gives_them(changes):
    model: Any = build_model(replace(CONFIG, **changes), 1000, seed=0)
    ids = torch.randint(0, 1000, (2, 40), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        hidden = model.encode(ids)
        logits = model.logits(hidden if changes.get("decoder", 0) is None else model.decode(ids, hidden))
    assert logits.std().item() == pytest.approx(1.0, abs=0.1)


def test_scores_that_are_scaled_have_queries_as_large_as_keys():
    config = replace(CONFIG, heads=HeadsConfig(count=4, bias=False))
    q, k, _ = build_model(config, VOCAB, seed=0).get_parameter("encoder.layers.0.attention.qkv.weight").chunk(3)
    assert q.std().item() == pytest.approx(k.std().item(), rel=0.05)


def test_models_that_differ_in_a_part_start_equal_in_all_others():
    local = replace(CONFIG, encoder=replace(CONFIG.encoder, attention=Local(3)))
    one, other = (build_model(config, VOCAB, seed=3).state_dict() for config in (CONFIG, local))
    assert {*one} - {*other} == {"encoder.biases.1.weight", "encoder.layers.0.attention.side_norm.weight"}
    assert all(torch.equal(one[name], other[name]) for name in other)
    again = build_model(CONFIG, VOCAB, seed=4).state_dict()
    assert not torch.equal(one["tokens.weight"], again["tokens.weight"])


LOSS_VOCAB, ROWS, LENGTH = 8192, 2, 256

HALF_A_NAT = 0.5

"""The cost of logits of unit variance, as T5's initial output layer gives them, above a uniform guess."""

NOISE = 5 / math.sqrt(ROWS * LENGTH)

"""Five standard deviations of the mean logit of the targets."""


def reduced(config: ModelConfig) -> ModelConfig:
    """The same model, with its initialisation, two layers deep and at most 256 wide."""
    pooling = config.encoder.pooling and replace(config.encoder.pooling, layers=1)
    return replace(
        config,
        width=min(config.width, 256),
        heads=replace(config.heads, count=min(config.heads.count, 4)),
        feed_forward=replace(config.feed_forward, width=min(config.feed_forward.width, 1024)),
        encoder=replace(config.encoder, layers=2, pooling=pooling),
        decoder=config.decoder and replace(config.decoder, layers=2),
    )


def configurations() -> dict[str, ModelConfig]:
    """The models of all pretraining recipes and of their generators by the recipe's name, one of each kind."""
    kinds: dict[ModelConfig, str] = {}
    for name in sorted(list_recipes(), key=lambda name: (len(name), name)):
        recipe = load_recipe(name)
        if recipe.data.task is not None:  # its model is that of pretraining
            continue
        for model in (recipe.model, *([recipe.generator.model] if recipe.generator else [])):
            kinds.setdefault(reduced(model), name)
    return {f"{name}-{number}": config for number, (config, name) in enumerate(kinds.items())}


CONFIGURATIONS = configurations()


@pytest.mark.parametrize("config", CONFIGURATIONS.values(), ids=CONFIGURATIONS.keys())
def test_the_first_loss_is_that_of_a_uniform_guess(config):
    model = build_model(config, LOSS_VOCAB, seed=0).eval()
    generator = torch.Generator().manual_seed(0)
    source, target, labels = torch.randint(0, LOSS_VOCAB, (3, ROWS, LENGTH), generator=generator)
    inputs = {"decoder_ids": target} if config.decoder else {}
    with torch.no_grad():
        loss = model(source_ids=source, labels=labels, **inputs).plain.item() / labels.numel()
    assert math.log(LOSS_VOCAB) - NOISE < loss < math.log(LOSS_VOCAB) + HALF_A_NAT + NOISE
