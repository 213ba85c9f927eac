"""Adapted models: within the reach of the short model, their logits are its own."""

from dataclasses import dataclass, replace

import pytest
import torch

from corpora.errors import FarspanError
from corpora.settings import parse
from objectives.api.special_tokens import SpecialTokens
from tests.trainer.conversion.models import loaded, text, tiny_config, tiny_model
from trainer.conversion.adapt import TRAINING, adapt, differences, flat, sample_globals
from trainer.conversion.vocabulary import Vocabulary
from trainer.model.config import DecoderConfig, EncoderConfig, ModelConfig
from trainer.model.context import Context
from trainer.model.layers.attention import attend
from trainer.model.layers.pooled import Pooling
from trainer.model.layers.sublayers import NormConfig
from trainer.model.patterns import Block, BlockGlobal, Full, Local, Overlap, Staggered, TGlobal, Window
from trainer.model.positions import Buckets, Learned, Sinusoidal
from trainer.recipe import load_recipe
from trainer.recipe_files import list_recipes

SHORT = 8
PATTERNS = {
    "block": (Block(SHORT), Pooling(1, 6, 4, 3)),
    "overlap": (Overlap(SHORT), None),
    "block_global": (BlockGlobal(SHORT, 2), None),
    "window": (Window(2 * SHORT), None),
}


def long_config(config, attention, pooling=None, positions=None):
    positions, layers = positions or Learned(4 * SHORT), config.encoder.layers
    encoder = EncoderConfig(layers=layers, positions=positions, attention=attention, pooling=pooling)
    return replace(config, encoder=encoder)


def adapted(short, target):
    return replace(short, config=target, state=adapt(short.state, short.config, target, short.vocabulary))


def logits(model, lengths):
    ids, real = text(lengths, high=23)
    made = loaded(model)
    with torch.no_grad():
        if model.config.decoder is None:
            return made.logits(made.encode(ids, real))[real]
        return made.logits(made.decode(ids[:, :5], made.encode(ids, real)))


def assert_law(short, long, lengths):
    torch.testing.assert_close(logits(long, lengths), logits(short, lengths), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", PATTERNS)
@pytest.mark.parametrize("decoder", [True, False])
def test_learned_positions_are_tiled_and_the_law_holds(name, decoder):
    short = tiny_model(tiny_config(decoder=decoder, positions=SHORT))
    long = adapted(short, long_config(short.config, *PATTERNS[name]))
    assert_law(short, long, [SHORT, 5, 1])
    rows = long.state["encoder.embedded.positions.weight"]
    assert all(torch.equal(block, short.state["encoder.embedded.positions.weight"]) for block in rows.split(SHORT))


def test_later_blocks_are_read_as_the_first_one_was():
    short = tiny_model(tiny_config(decoder=False, positions=SHORT))
    long = loaded(adapted(short, long_config(short.config, Block(SHORT))))
    ids, _ = text([SHORT], high=23)
    with torch.no_grad():
        once, thrice = (long.logits(long.encode(ids.repeat(1, times))) for times in (1, 3))
    torch.testing.assert_close(thrice, once.repeat(1, 3, 1), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("attention", [Local(SHORT), TGlobal(2 * SHORT, 16)])
def test_relative_positions_are_kept_and_the_law_holds(attention):
    buckets = Buckets(8, 16)
    config = tiny_config(EncoderConfig(layers=2, positions=buckets, attention=Full()))
    config = replace(config, norm=NormConfig(placement="pre", kind="rms"))
    short = tiny_model(config)
    long = adapted(short, long_config(config, attention, positions=buckets))
    assert_law(short, long, [SHORT, 3])
    tables = [name for name in long.state if name.startswith("encoder.biases.")]
    assert len(tables) == len(attention.offsets(1))
    assert all(torch.equal(long.state[name], short.state["encoder.biases.0.weight"]) for name in tables)
    assert all(bool((x == 1).all()) for name, x in long.state.items() if "side_norm" in name)


def test_a_decoder_gets_the_positions_that_the_target_has():
    short = tiny_model()
    target = replace(short.config, decoder=replace(short.config.decoder, positions=Learned(10)))
    name = "decoder.embedded.positions.weight"
    assert torch.equal(adapted(short, target).state[name], short.state[name][:10])


def test_global_projections_begin_as_those_of_the_other_positions():
    short = tiny_model(tiny_config(decoder=False, positions=SHORT))
    state = adapted(short, long_config(short.config, Window(4))).state
    copies = [name for name in state if "global_qkv" in name]
    assert len(copies) == 4
    assert all(torch.equal(state[name], short.state[name.replace("global_qkv", "qkv")]) for name in copies)


def test_learned_tokens_begin_as_rows_of_tokens_and_with_their_norm():
    config = tiny_config(EncoderConfig(layers=2, positions=Sinusoidal(), attention=Full()))
    short = tiny_model(config)
    long = adapted(short, long_config(config, Staggered(SHORT, 3), positions=Sinusoidal()))
    special = set(short.vocabulary.special.ids.values())
    for row in long.state["encoder.extra"]:
        (found,) = (short.state["tokens.weight"] == row).all(1).nonzero()[0]
        assert int(found) not in special
    for kind in ("tokens", "extra"):
        name = f"encoder.layers.1.attention_residual.norm.{kind}.weight"
        assert torch.equal(long.state[name], short.state[name.replace(f".{kind}", "")])
    other = adapt(short.state, config, long.config, short.vocabulary, seed=1)
    assert not torch.equal(other["encoder.extra"], long.state["encoder.extra"])


def test_every_difference_that_is_no_adaptation_is_listed():
    short = tiny_model()
    target = replace(short.config, norm=NormConfig(eps=1e-6), heads=replace(short.config.heads, count=2), dropout=0.5)
    with pytest.raises(FarspanError) as raised:
        adapted(short, target)
    lines = str(raised.value).splitlines()
    assert "  model.heads.count: the model has 4, the target 2" in lines
    assert "  model.norm.eps: the model has 1e-05, the target 1e-06" in lines
    assert not any("dropout" in line for line in lines)
    assert "--set model.heads.count=4 --set model.heads.width=4 --set model.norm.eps=1e-05" in lines[-1]


def test_the_waves_of_pegasus_stay_what_they_are_until_told():
    """PEGASUS-X of Hugging Face has other waves: to take them would change what every layer has learned."""
    config = tiny_config(EncoderConfig(layers=2, positions=Sinusoidal("pegasus"), attention=Full()))
    target = long_config(config, Staggered(SHORT, 3), positions=Sinusoidal("pegasus_x"))
    with pytest.raises(FarspanError, match=r"--set model\.encoder\.positions\.variant=pegasus\)"):
        adapt(tiny_model(config).state, config, target, tiny_model(config).vocabulary)


def test_nothing_learned_is_thrown_away():
    pooled = tiny_config(EncoderConfig(layers=2, positions=Learned(16), pooling=Pooling(1, 6, 4, 3), attention=Full()))
    model = tiny_model(pooled)
    with pytest.raises(FarspanError, match=r"no place for these(.|\n)*pooling\.out\.bias"):
        adapted(model, tiny_config())


def test_projection_biases_go_only_where_they_are_zero():
    model = tiny_model()
    target = replace(model.config, heads=replace(model.config.heads, bias=False))
    with pytest.raises(FarspanError, match=r"attention\.qkv\.bias"):
        adapted(model, target)
    biases = [name for name in model.state if "attention." in name and name.endswith("bias")]
    model = replace(model, state={**model.state, **{name: torch.zeros_like(model.state[name]) for name in biases}})
    assert_law(model, adapted(model, target), [9, 4])


def decoder_of(config, **options):
    return replace(config, decoder=replace(config.decoder, **options))


@pytest.mark.parametrize("layers", [(0, 2), (1,)])
def test_cross_attention_is_dropped_in_layers_that_the_target_has_none_in(layers):
    """The logits are those of the model with nothing added there (PEGASUS-X, table 13)."""
    config = tiny_config()
    config = decoder_of(replace(config, norm=NormConfig(placement="pre")), layers=3)
    short = tiny_model(config)
    few = adapted(short, decoder_of(config, cross_attention=layers))
    gone = {name for name in short.state if name not in few.state}
    assert {int(name.split(".")[2]) for name in gone} == {0, 1, 2} - set(layers)
    assert all(name.split(".")[3].startswith("cross_attention") for name in gone)
    assert all(torch.equal(few.state[name], short.state[name]) for name in few.state)
    silent = {name: torch.zeros_like(x) if name in gone and ".out." in name else x for name, x in short.state.items()}
    assert_law(replace(short, state=silent), few, [9, 4])
    with pytest.raises(FarspanError, match=r"layers \[.*\] attend to no encoder.*choose among \["):
        adapted(few, config)


def test_cross_attention_to_learned_tokens_starts_without_effect():
    config = load_recipe("tiny_pegasus_x").model
    config = replace(config, dropout=0.0)
    plain = tiny_model(config)
    more = adapted(plain, decoder_of(config, global_cross_attention=True))
    layer = "decoder.layers.1."
    for name in ("cross_attention.q.weight", "cross_attention.kv.weight", "cross_attention_residual.norm.weight"):
        assert torch.equal(more.state[f"{layer}global_{name}"], plain.state[f"{layer}{name}"])
    assert not more.state[f"{layer}global_cross_attention.out.weight"].any()
    assert_law(plain, more, [40, 7])
    with pytest.raises(FarspanError, match=r"no place for these(.|\n)*global_cross_attention\.q"):
        adapted(more, config)
    dropped = adapted(more, decoder_of(config, global_cross_attention=True, cross_attention=(1,)))
    assert not [name for name in dropped.state if name.startswith("decoder.layers.0.") and "cross" in name]


# Differences between configurations, and the form of a recipe that a configuration is read back from

CONFIG = tiny_config()


@pytest.mark.parametrize("name", list_recipes())
def test_a_configuration_is_read_back_from_the_form_of_a_recipe(name):
    config = load_recipe(name).model
    assert parse(ModelConfig, config.as_table(), "test", "model") == config
    assert differences(config, config, allowed=()) == []


def test_every_difference_has_its_dotted_field_and_both_values():
    other = replace(CONFIG, encoder=replace(CONFIG.encoder, layers=5, positions=Learned(99)), init_std=0.5)
    expected = [("encoder.layers", 2, 5), ("encoder.positions.count", 16, 99)]
    assert differences(CONFIG, other) == expected
    assert differences(CONFIG, other, allowed=()) == [*expected, ("init_std", 0.3, 0.5)]
    swapped = [(name, theirs, ours) for name, ours, theirs in differences(CONFIG, other, allowed=())]
    assert differences(other, CONFIG, allowed=()) == swapped
    assert differences(CONFIG, other, allowed=("encoder.*", *TRAINING)) == []


def test_a_part_that_one_model_lacks_is_listed_field_by_field():
    alone = replace(CONFIG, decoder=None)
    found = {name: (ours, theirs) for name, ours, theirs in differences(CONFIG, alone)}
    assert found["decoder.layers"] == (1, None)
    assert all(name.startswith("decoder.") and theirs is None for name, (_, theirs) in found.items())


def test_heads_of_the_default_width_are_those_of_the_same_width_in_numbers():
    written = replace(CONFIG, heads=replace(CONFIG.heads, width=4))
    assert flat(CONFIG)["heads.width"] == 4
    assert differences(CONFIG, written) == []
    assert differences(CONFIG, replace(CONFIG, heads=replace(CONFIG.heads, width=6))) == [("heads.width", 4, 6)]


# Learned global tokens in an encoder that had none: what they begin as, and how far the model is the short one

VOCAB, EXTRA, SIZE = 31, 4, 12
KNOWN = Vocabulary(SpecialTokens({"<pad>": 0, "<bos>": 2, "<eos>": 1}, VOCAB), tokenizer_size=VOCAB)
TABLE = torch.randn(VOCAB, 8, generator=torch.Generator().manual_seed(0))
GLOBALS_SHORT = replace(
    tiny_config(EncoderConfig(layers=3, positions=Sinusoidal(), attention=Full())),
    norm=NormConfig(placement="pre"),
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


def difference(short, long, length: int) -> float:
    """Largest difference of the logits of a short model and of the long one that it becomes."""
    source, target = (torch.randint(3, VOCAB, (2, n), generator=torch.Generator().manual_seed(n)) for n in (length, 5))
    one, other = (model.logits(model.decode(target, model.encode(source))) for model in (short, long))
    return (one - other).abs().max().item()


@pytest.mark.parametrize(("staggered", "reach"), [(True, SIZE // 2), (False, SIZE)])
def test_with_learned_tokens_out_of_sight_the_model_is_the_short_one_within_its_reach(staggered, reach):
    model = tiny_model(GLOBALS_SHORT, KNOWN)
    kinds = (OutOfSight(SIZE, EXTRA, staggered), Staggered(SIZE, EXTRA, staggered))
    targets = [replace(GLOBALS_SHORT, encoder=replace(GLOBALS_SHORT.encoder, attention=kind)) for kind in kinds]
    short, long, seen = (loaded(each) for each in (model, *(adapted(model, target) for target in targets)))
    assert max(difference(short, long, length) for length in (1, 3, reach)) < 1e-5
    assert difference(short, long, reach + 1) > 1e-3  # the first edge
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
