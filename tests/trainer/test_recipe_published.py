"""The packaged recipes of published models have the released sizes and settings."""

from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch
import transformers

from trainer.conversion.adapt import TRAINING, differences
from trainer.conversion.family import family_of
from trainer.model.build import make_model
from trainer.model.config import ModelConfig
from trainer.model.layers.pooled import Pooling
from trainer.model.loss import LossConfig
from trainer.model.patterns.block import Block
from trainer.optim.schedule import learning_rate_factor
from trainer.recipe import load_recipe
from trainer.recipe_files import list_recipes

BART = 50_265  # also LED's, RoBERTa's and Longformer's


def count(model: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


@cache
def ours(recipe: str, vocab_size: int) -> int:
    with torch.device("meta"):
        return count(make_model(load_recipe(recipe).model, vocab_size))


def released(name: str, **config: object) -> int:
    """Parameters of the transformers model ``name`` with the released configuration."""
    kind = getattr(transformers, name)
    with torch.device("meta"):
        return count(kind(kind.config_class(**config)))


def stacks(width: int, feed_forward: int, layers: int, heads: int) -> dict[str, int]:
    """An encoder and a decoder of the same sizes, in the words of BART and its kin."""
    sides = {
        f"{side}_{part}": value
        for side in ("encoder", "decoder")
        for part, value in (("layers", layers), ("ffn_dim", feed_forward), ("attention_heads", heads))
    }
    return {"d_model": width, **sides}


BASE, LARGE = stacks(768, 3072, 6, 12), stacks(1024, 4096, 12, 16)


LED, LONG = "LEDForConditionalGeneration", {"max_position_embeddings": 514, "type_vocab_size": 1}
PEGASUS_BASE, PEGASUS_LARGE = stacks(768, 3072, 12, 12), stacks(1024, 4096, 16, 16)
GLOBAL = {"num_global_tokens": 128, "block_size": 512}
RELEASED: list[tuple[str, int, str, dict[str, Any], int]] = [
    # recipe, rows of tokens, released model and its configuration, parameters that ours has more
    ("led_base", BART, LED, {"attention_window": 1024, **BASE}, 0),
    ("led_large", BART, LED, {"attention_window": 1024, **LARGE}, 0),
    # LED's tables have no unused rows; the vocabulary has one row more, for <doc-sep>.
    ("primera", BART + 1, LED, {"attention_window": 512, "max_encoder_position_embeddings": 4096, **LARGE}, 0),
    # Two rows for <doc-s> and </doc-s>. Longformer has rows that no real position reads, positions 0 and 1, and one
    # token type, whose row is added to every position; ours has neither.
    (
        "cdlm", BART + 2, "LongformerForMaskedLM",
        {"max_position_embeddings": 4098, "type_vocab_size": 1, "layer_norm_eps": 1e-5, "attention_window": 512},
        -3 * 768,
    ),
    # RoBERTa with six layers. Ours has longer positions, none of the two rows that no real position reads, and no token
    # type; <doc-s>, </doc-s> and <mask> are rows of the vocabulary in both.
    ("bart_ls_generator", BART, "RobertaForMaskedLM", {"num_hidden_layers": 6, **LONG}, (16_384 - 514 - 1) * 768),
    ("pegasus_x_base", 96_103, "PegasusXForConditionalGeneration", {**GLOBAL, **PEGASUS_BASE}, 0),
    ("pegasus_x_large", 96_103, "PegasusXForConditionalGeneration", {**GLOBAL, **PEGASUS_LARGE}, 0),
    ("bigbird_pegasus_large", 96_103, "BigBirdPegasusForConditionalGeneration", PEGASUS_LARGE, 0),
    # The released model has an output layer of its own.
    (
        "umt5_base", 256_384, "UMT5ForConditionalGeneration",
        {"d_model": 768, "d_kv": 64, "d_ff": 2048, "num_layers": 12, "num_heads": 12}, 256_384 * 768,
    ),
    # mBART-25 and mBART-50; two rows of each position table are read by no real position.
    ("mbart_large", 250_027, "MBartForConditionalGeneration", LARGE, -2 * 2 * 1024),
    ("mbart_large", 250_054, "MBartForConditionalGeneration", LARGE, -2 * 2 * 1024),
    # BART-LS without pooling is BART with longer positions: BART's two tables have 1,024 rows and 2 that no real
    # position reads; ours have 16,384 and 1,024.
    *(
        (f"bart_ls_{pattern}", BART, "BartForConditionalGeneration", BASE, (16_384 + 1024 - 2 * 1026) * 768)
        for pattern in ("block", "overlap", "global")
    ),
]  # fmt: skip


@pytest.mark.parametrize(("recipe", "rows", "name", "config", "more"), RELEASED)
def test_sizes_are_the_released_ones(recipe, rows, name, config, more):
    assert ours(recipe, rows) == released(name, vocab_size=rows, **config) + more


@pytest.mark.parametrize(("recipe", "published"), [("pegasus_x_base", 272e6), ("pegasus_x_large", 568e6)])
def test_pegasus_x_is_as_large_as_table_5_says(recipe, published):
    assert ours(recipe, 96_103) == pytest.approx(published, rel=0.005)


@pytest.mark.parametrize(
    ("size", "sizes"),
    [
        ("base", {"d_model": 768, "d_ff": 2048, "num_layers": 12, "num_heads": 12}),
        ("large", {"d_model": 1024, "d_ff": 2816, "num_layers": 24, "num_heads": 16}),
        ("xl", {"d_model": 2048, "d_ff": 5120, "num_layers": 24, "num_heads": 32}),
    ],
)
@pytest.mark.parametrize(("pattern", "kind"), [("local", "local"), ("tglobal", "transient-global")])
def test_longt5(pattern, kind, size, sizes):
    """The released models have an output layer of their own, which transformers 5 ties to the token table."""
    for name, vocab_size in (("T5", 32_128), ("MT5", 250_112)):
        values = {"vocab_size": vocab_size, "d_kv": 64, "feed_forward_proj": "gated-gelu", **sizes}
        full = released(f"{name}ForConditionalGeneration", **values) + vocab_size * sizes["d_model"]
        assert ours(f"t5_{size}", vocab_size) == full
    released_count = released(
        "LongT5ForConditionalGeneration",
        vocab_size=32_128, d_kv=64, feed_forward_proj="gated-gelu", encoder_attention_type=kind, **sizes,
    )  # fmt: skip
    output = 32_128 * sizes["d_model"]
    assert ours(f"longt5_{pattern}_{size}", 32_128) == released_count + output


GEMMA = {
    "270m": (18, {"hidden_size": 640, "intermediate_size": 2048, "num_key_value_heads": 1, "sliding_window": 512}),
    "1b": (26, {"hidden_size": 1152, "intermediate_size": 6912, "num_key_value_heads": 1, "sliding_window": 512}),
    "4b": (34, {"hidden_size": 2560, "intermediate_size": 10_240, "num_key_value_heads": 4, "sliding_window": 1024}),
}


def t5gemma2(size: str) -> dict[str, Any]:
    """The released configuration without the vision tower."""
    layers, sizes = GEMMA[size]
    full = {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6}
    local = {"rope_type": "default", "rope_theta": 1e4}
    stack = {
        **sizes, "num_hidden_layers": layers, "num_attention_heads": 4 * (1 + (size == "4b")), "vocab_size": 262_144,
        "rope_parameters": {"full_attention": full, "sliding_attention": local},
    }  # fmt: skip
    vision = {"num_hidden_layers": 0, "vision_use_head": False, "model_type": "siglip_vision_model"}
    return {"encoder": {"text_config": stack, "vision_config": vision}, "decoder": stack}


@pytest.mark.parametrize(("size", "published"), [("270m", 0.37e9), ("1b", 1.70e9), ("4b", 7.09e9)])
def test_t5gemma2(size, published):
    """The published numbers have two or three digits, and no vision tower."""
    with torch.device("meta"):
        model = transformers.T5Gemma2ForConditionalGeneration(transformers.T5Gemma2Config(**t5gemma2(size)))
    images = ("vision_tower", "multi_modal_projector")
    text = sum(x.numel() for name, x in model.named_parameters() if not any(part in name for part in images))
    assert ours(f"t5gemma2_{size}", 262_144) == text == pytest.approx(published, rel=0.01)
    config = load_recipe(f"t5gemma2_{size}").model
    values = transformers.T5Gemma2Config(**t5gemma2(size)).to_dict()
    assert differences(config, family_of("t5gemma2").read_config(values)) == []


ETTIN = {  # layers, width, feed-forward and heads
    "ettin_17m": (7, 256, 384, 4),
    "ettin_32m": (10, 384, 576, 6),
    "ettin_68m": (19, 512, 768, 8),
    "ettin_150m": (22, 768, 1152, 12),
    "ettin_400m": (28, 1024, 2624, 16),
    "ettin_1b": (28, 1792, 3840, 28),
}


@pytest.mark.parametrize(
    ("recipe", "sizes", "published"),
    [
        ("modernbert_base", ETTIN["ettin_150m"], 149_655_232),  # with the head, as the released file
        ("modernbert_large", ETTIN["ettin_400m"], 395_881_664),
        *((name, sizes, None) for name, sizes in ETTIN.items()),
    ],
)
def test_modernbert_and_ettin(recipe, sizes, published):
    layers, width, feed_forward, heads = sizes
    config = {
        "num_hidden_layers": layers, "hidden_size": width, "intermediate_size": feed_forward,
        "num_attention_heads": heads, "local_rope_theta": 160_000.0 if recipe.startswith("ettin") else 10_000.0,
    }  # fmt: skip
    assert ours(recipe, 50_368) == released("ModernBertForMaskedLM", **config)
    assert published in (None, ours(recipe, 50_368))
    if published is None:  # Ettin's are named after theirs
        million = {"k": 1e-3, "m": 1.0, "b": 1e3}[recipe[-1]] * int(recipe[6:-1])
        assert ours(recipe, 50_368) / 1e6 == pytest.approx(million, rel=0.04)
    values = transformers.ModernBertConfig(**config).to_dict()
    assert differences(load_recipe(recipe).model, family_of("modernbert").read_config(values)) == []


def test_bart_ls_and_its_generator_trained_together():
    joint = load_recipe("bart_ls_joint", ["data.corpus=c"])
    assert joint.model == load_recipe("bart_ls_base").model
    assert differences(joint.generator.model, load_recipe("bart_ls_generator").model) == []
    assert joint.generator.model.dropout == joint.model.dropout == 0.0
    begun = load_recipe("bart_ls_joint", ["generator.model=none", "generator.initial=run"]).generator
    assert (begun.model, begun.initial) == (None, "run")


def test_bart_ls():
    pooled = 4 * 4 * (768 * 768 + 768)  # q, k, v and out with biases, in 4 layers
    assert ours("bart_ls_base", BART) == ours("bart_ls_block", BART) + pooled
    assert ours("bart_ls_large", BART) == pytest.approx(440e6, rel=0.02)  # table 4


@pytest.mark.parametrize("name", ["longt5_local_base", "longt5_tglobal_large"])
def test_steps_of_adafactor_are_those_of_t5(name):
    recipe = load_recipe(name)
    assert recipe.optimizer.name == "adafactor"
    for step in (0, 500, 9_999, 10_000, 40_000):
        rate = recipe.optimizer.learning_rate * learning_rate_factor(step, recipe.run.steps, recipe.schedule)
        assert min(rate, (step + 1) ** -0.5) == pytest.approx(max(step + 1, 10_000) ** -0.5)


@pytest.mark.parametrize(
    ("name", "dropout", "attention_dropout", "clip", "batch"),
    [
        ("bart_ls_base", 0.0, 0.0, 0.1, 256),
        ("bart_ls_large", 0.1, 0.1, 0.1, 512),
        ("primera", 0.1, 0.0, 0.0, 16),
        ("longt5_tglobal_base", 0.0, 0.0, 0.0, 128),
        ("pegasus_x_large", 0.1, 0.1, 0.0, 1024),
        ("cdlm", 0.1, 0.1, 1.0, 64),
    ],
)
def test_dropout_clipping_and_batch_are_those_of_the_released_scripts(name, dropout, attention_dropout, clip, batch):
    recipe = load_recipe(name)
    found = recipe.model.dropout, recipe.model.attention_dropout, recipe.optimizer.clip_norm, recipe.run.batch_size
    assert found == (dropout, attention_dropout, clip, batch)


def test_bart_ls_stops_at_a_fifth_of_its_schedule():
    recipe = load_recipe("bart_ls_large")
    last = learning_rate_factor(recipe.run.steps - 1, recipe.run.steps, recipe.schedule)
    assert (recipe.run.steps, recipe.schedule.steps) == (100_000, 500_000)
    assert last == pytest.approx(1 - 99_499 / 499_500)


def test_losses_are_the_released_ones():
    assert load_recipe("longt5_tglobal_large").loss == LossConfig(z_loss=1e-4)
    assert load_recipe("pegasus_x_large").loss == LossConfig(label_smoothing=0.1)
    assert load_recipe("bart_ls_base").loss == load_recipe("primera").loss == LossConfig()


def parts(kind: str, **config: object) -> ModelConfig:
    """The released configuration ``kind`` as it is read, activations, norms and scales included."""
    values = getattr(transformers, kind)(**config).to_dict() | config  # T5's says of all that their tables are tied
    return family_of(values["model_type"]).read_config(values)


PEGASUS_X = {"activation_function": "relu", "scale_embedding": True, "num_global_tokens": 128, "block_size": 512}
LONGT5 = {"feed_forward_proj": "gated-gelu", "d_kv": 64, "tie_word_embeddings": False, "scale_decoder_outputs": False}


@pytest.mark.parametrize(
    ("recipe", "kind", "config"),
    [
        ("led_base", "LEDConfig", {"attention_window": 1024, **BASE}),
        ("mbart_large", "MBartConfig", {"scale_embedding": True, **LARGE}),
        ("led_large", "LEDConfig", {"attention_window": 1024, **LARGE}),
        ("primera", "LEDConfig", {"attention_window": 512, "max_encoder_position_embeddings": 4096, **LARGE}),
        ("cdlm", "LongformerConfig", {"max_position_embeddings": 4098, "layer_norm_eps": 1e-5, "pad_token_id": 1}),
        ("pegasus_x_base", "PegasusXConfig", {**PEGASUS_X, **PEGASUS_BASE}),
        ("pegasus_x_large", "PegasusXConfig", {**PEGASUS_X, **PEGASUS_LARGE}),
        ("bigbird_pegasus_large", "BigBirdPegasusConfig", {"vocab_size": 96_103, **PEGASUS_LARGE}),
        (
            "longt5_local_base",
            "LongT5Config",
            {**LONGT5, "d_model": 768, "d_ff": 2048, "num_layers": 12, "num_heads": 12},
        ),
        (
            "longt5_tglobal_large",
            "LongT5Config",
            {
                **LONGT5, "d_model": 1024, "d_ff": 2816, "num_layers": 24, "num_heads": 16,
                "encoder_attention_type": "transient-global",
            },
        ),
    ],
)  # fmt: skip
def test_every_part_is_that_of_the_released_model(recipe, kind, config):
    assert differences(load_recipe(recipe).model, parts(kind, **config)) == []


@pytest.mark.parametrize(("recipe", "sizes"), [("bart_ls_base", BASE), ("bart_ls_large", LARGE)])
def test_every_part_of_bart_ls_but_its_attention_is_that_of_bart(recipe, sizes):
    new = ("encoder.attention.*", "encoder.pooling.*", "encoder.positions.count", *TRAINING)
    assert differences(load_recipe(recipe).model, parts("BartConfig", **sizes), new) == []


def test_data_fits_the_pattern():
    """The widest batch is a whole number of blocks or within one; recipes write into folders of their own names."""
    for name in list_recipes():
        recipe = load_recipe(name)
        assert recipe.run.directory == f"runs/{name}"
        size = getattr(recipe.model.encoder.attention, "size", 1)
        assert recipe.data.source_length % size == 0 or recipe.data.source_length < size


def test_bart_ls_large_is_the_published_one():
    recipe = load_recipe("bart_ls_large")
    model = recipe.model
    assert (model.width, model.heads.count, model.feed_forward.width, model.norm.placement) == (1024, 16, 4096, "post")
    assert (model.encoder.layers, model.decoder.layers, model.encoder.positions.count) == (12, 12, 16_384)
    assert model.encoder.attention == Block(1024)
    assert model.encoder.pooling == Pooling(layers=4, kernel=18, stride=12, padding=9)
    optimizer = recipe.optimizer
    assert (optimizer.learning_rate, optimizer.betas, optimizer.eps) == (1e-4, (0.9, 0.98), 1e-6)
    assert (optimizer.weight_decay, optimizer.clip_norm) == (0.01, 0.1)
    assert (recipe.schedule.warmup_steps, recipe.schedule.power) == (500, 1.0)
    assert (recipe.run.batch_size, recipe.run.steps, recipe.run.seed) == (512, 100_000, 42)


def test_base_is_large_but_for_its_sizes_dropout_and_batch():
    base, large = (load_recipe(f"bart_ls_{size}") for size in ("base", "large"))
    run = replace(large.run, directory="runs/bart_ls_base", batch_size=256)
    assert replace(base, model=large.model) == replace(large, run=run)
    model = base.model
    assert (model.width, model.heads.count, model.feed_forward.width) == (768, 12, 3072)
    assert (model.encoder.layers, model.decoder.layers) == (6, 6)
    same = replace(
        large.model, dropout=0.0, attention_dropout=0.0,
        width=768, heads=model.heads, feed_forward=model.feed_forward,
        encoder=replace(large.model.encoder, layers=6), decoder=replace(large.model.decoder, layers=6),
    )  # fmt: skip
    assert model == same
