"""Compiled layers compute what plain ones compute, for every pattern, and are compiled once for all lengths."""

import shutil
from dataclasses import replace

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from corpora.errors import FarspanError
from tests.trainer.toy import ToySource, metrics_of, toy_recipe
from trainer.model.build import build_model
from trainer.model.config import DecoderConfig, EncoderConfig, ModelConfig
from trainer.model.layers.heads import HeadsConfig
from trainer.model.layers.pooled import Pooling
from trainer.model.layers.sublayers import FeedForwardConfig, NormConfig
from trainer.model.loss import LossConfig, R3FConfig
from trainer.model.patterns.bigbird import BigBird
from trainer.model.patterns.block import Block
from trainer.model.patterns.block_global import BlockGlobal
from trainer.model.patterns.full import Full
from trainer.model.patterns.layered import Layered
from trainer.model.patterns.local import Local
from trainer.model.patterns.overlap import Overlap
from trainer.model.patterns.span import Span
from trainer.model.patterns.staggered import Staggered
from trainer.model.patterns.tglobal import TGlobal
from trainer.model.patterns.window import Window
from trainer.model.positions import Buckets, Learned, Rotary
from trainer.parallel.wrapping import apply_activation_checkpointing, apply_compile
from trainer.run.train import train

BLOCK = 8
VOCAB = 50
PATTERNS = {
    "full": Full(),
    "block": Block(BLOCK),
    "overlap": Overlap(BLOCK),
    "block_global": BlockGlobal(BLOCK, 2),
    "staggered": Staggered(BLOCK, 3),
    "local": Local(BLOCK - 1),
    "tglobal": TGlobal(BLOCK - 1, 4),
    "window": Window(BLOCK),
    "span": Span(BLOCK, 3),
    "layered": Layered(BLOCK, 3, 2),
}
"""Those that compile."""
needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="there is no g++ for the generated code")


def make(pattern, pooling: bool = False, decoder: bool = False):
    positions = Buckets(8, 16) if isinstance(pattern, Local | TGlobal) else Learned(64)
    config = ModelConfig(
        width=16, heads=HeadsConfig(count=2), feed_forward=FeedForwardConfig(width=32), dropout=0.0, init_std=0.3,
        encoder=EncoderConfig(
            layers=2 if pattern.at(1) != pattern.at(0) else 1, positions=positions, attention=pattern,
            pooling=Pooling(layers=1, kernel=6, stride=4, padding=3, reference_init=True) if pooling else None,
        ),
        decoder=DecoderConfig(layers=1, positions=positions) if decoder else None,
    )  # fmt: skip
    if isinstance(pattern, Layered) and decoder:
        rotary, causal = Rotary(local_theta=50.0), Layered(4, 0, 2, causal=True)
        config = replace(
            config, heads=HeadsConfig(count=4, kv_count=2, norm_eps=1e-6), norm=NormConfig(placement="both"),
            encoder=replace(config.encoder, positions=rotary),
            decoder=DecoderConfig(layers=2, positions=rotary, attention=causal, cross="merged"),
        )  # fmt: skip
    return build_model(config, VOCAB, seed=0)


def inputs(length: int, padding: bool, decoder: bool) -> dict[str, torch.Tensor | None]:
    """Two rows; the first target is as long as the model is wide."""
    target_length = 16 * length // (5 * BLOCK)
    ids = torch.randint(0, VOCAB, (2, length), generator=torch.Generator().manual_seed(length))
    target = {"decoder_ids": ids[:, :target_length], "labels": ids[:, :target_length]} if decoder else {"labels": ids}
    return {
        "source_ids": ids,
        "source_padding_mask": torch.arange(length) < torch.tensor([[length], [length - 3]]) if padding else None,
        "global_positions": torch.arange(length) % 7 == torch.tensor([[1], [2]]),
        **target,
    }


def loss_and_gradients(model, batch, loss=LossConfig()) -> dict[str, torch.Tensor]:  # noqa: B008 (frozen)
    model.zero_grad()
    torch.manual_seed(0)  # of R3F's noise
    losses = model(**batch, loss=loss)
    loss = losses.minimised if losses.divergence is None else losses.minimised + losses.divergence
    loss.backward()
    return {"loss": loss.detach()} | {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


def assert_compiled_is_plain(pattern, backend, *, padding=True, checkpointing="none", r3f=None, part="", **parts):
    """Also where a first length has been compiled and no other may be; ``part`` alone is compiled, if it is named."""
    loss = LossConfig(r3f=r3f)
    torch._dynamo.reset()
    plain, compiled = make(pattern, **parts), make(pattern, **parts)
    apply_activation_checkpointing(compiled, checkpointing)
    apply_compile(compiled.get_submodule(part), backend)
    assert list(plain.state_dict()) == list(compiled.state_dict())
    for blocks, stance in ((5, "default"), (4, "fail_on_recompile"), (7, "fail_on_recompile")):
        batch = inputs(blocks * BLOCK, padding, parts.get("decoder", False))
        with torch.compiler.set_stance(stance):
            found = loss_and_gradients(compiled, batch, loss)
        torch.testing.assert_close(found, loss_and_gradients(plain, batch, loss), atol=1e-5, rtol=1e-5)


def test_both_passes_of_r3f_are_traced_once():
    """Of an encoder with reshaped attention, and of nothing else, because tracing takes seconds."""
    assert_compiled_is_plain(Block(BLOCK), "eager", decoder=True, r3f=R3FConfig(eps=0.1), part="encoder")


@pytest.mark.slow
@pytest.mark.parametrize("pattern", PATTERNS.values(), ids=PATTERNS)
def test_every_pattern_is_traced_once(pattern):
    assert_compiled_is_plain(pattern, "eager")


@pytest.mark.slow
@pytest.mark.parametrize("checkpointing", ["none", "selective"])
def test_merged_cross_attention_is_traced_once(checkpointing):
    assert_compiled_is_plain(PATTERNS["layered"], "eager", checkpointing=checkpointing, decoder=True)


@pytest.mark.slow
@pytest.mark.parametrize("checkpointing", ["layer", "selective"])
def test_decoder_pooling_and_checkpointing_are_traced_once(checkpointing):
    parts = {"pooling": True, "decoder": True, "r3f": R3FConfig(eps=0.1)}
    assert_compiled_is_plain(Block(BLOCK), "eager", checkpointing=checkpointing, **parts)


class Counted(TorchDispatchMode):
    """A counter of the operations whose names begin with given words."""

    def __init__(self, *words: str) -> None:
        super().__init__()
        self.words, self.counts = words, dict.fromkeys(words, 0)

    def __torch_dispatch__(self, function, types, arguments=(), named=None):
        for word in self.words:
            self.counts[word] += function.__name__.startswith(word)
        return function(*arguments, **(named or {}))


def test_selective_checkpointing_computes_all_again_but_what_is_dear():
    found, counts = {}, {}
    attention = "_scaled_dot_product_flash_attention_for_cpu.default"
    for mode in ("none", "selective", "layer"):
        model = make(Block(BLOCK), pooling=True, decoder=True)
        for module in model.modules():
            if isinstance(module, torch.nn.Dropout):
                module.p = 0.3
        apply_activation_checkpointing(model, mode)
        torch.manual_seed(0)
        with Counted("addmm", attention, "gelu.") as counted:
            found[mode] = loss_and_gradients(model, inputs(5 * BLOCK, False, True))
        counts[mode] = counted.counts
    for mode in ("selective", "layer"):
        torch.testing.assert_close(found[mode], found["none"])
    assert counts["selective"]["addmm"] == counts["none"]["addmm"] < counts["layer"]["addmm"]
    assert counts["selective"][attention] == counts["none"][attention] == counts["layer"][attention] / 2
    assert counts["selective"]["gelu."] == counts["layer"]["gelu."] == 2 * counts["none"]["gelu."]


def test_a_pattern_that_does_not_compile_is_refused():
    with pytest.raises(FarspanError, match="pattern 'bigbird' cannot be compiled; unset it"):
        apply_compile(make(BigBird(BLOCK)), "eager")


@needs_compiler
@pytest.mark.slow
@pytest.mark.parametrize("padding", [False, True], ids=["whole", "padded"])
@pytest.mark.parametrize("pattern", PATTERNS.values(), ids=PATTERNS)
def test_every_pattern_is_compiled(pattern, padding):
    assert_compiled_is_plain(pattern, "inductor", padding=padding)


@needs_compiler
@pytest.mark.slow
def test_decoder_pooling_and_checkpointing_are_compiled():
    assert_compiled_is_plain(Block(BLOCK), "inductor", pooling=True, decoder=True, checkpointing="layer")


@needs_compiler
@pytest.mark.slow
@pytest.mark.parametrize("r3f", [None, R3FConfig(weight=0.5, eps=0.1)])
def test_a_run_is_compiled(tmp_path, r3f):
    """The whole way from the recipe, generated code included: the same losses without dropout."""
    torch._dynamo.reset()
    plain, compiled = (toy_recipe(tmp_path / name, dropout=0.0, compile=name == "c") for name in ("plain", "c"))
    for recipe in (plain, compiled):
        train(replace(recipe, loss=LossConfig(r3f=r3f)), source=ToySource(), until=3)
    for expected, found in zip(metrics_of(plain), metrics_of(compiled), strict=True):
        assert found["loss"] == pytest.approx(expected["loss"], rel=1e-4)
        assert found.get("r3f_divergence") == pytest.approx(expected.get("r3f_divergence"), rel=1e-4)
        assert ("r3f_divergence" in found) == (r3f is not None)


def test_compiling_needs_a_compiler(monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(FarspanError, match=r"run.compile is true, but there is no no-such-compiler; install it"):
        apply_compile(make(Full()))
