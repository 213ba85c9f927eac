"""Tests of estimates of a run: operations, hours of GPUs, time on this machine, and saved activations."""

import json
import re
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from corpora.printing import compare_estimate
from tests.artefacts import make_corpus
from tests.trainer.toy import train_quietly
from trainer.command import run_command
from trainer.model.build import build_model
from trainer.model.context import Context, make_context
from trainer.model.decoder import EncoderOutput
from trainer.options import Training
from trainer.parallel.wrapping import apply_activation_checkpointing
from trainer.recipe import Recipe, load_recipe
from trainer.run.activations import Numbers, activations
from trainer.run.estimate import PEAKS, UTILISATION, Measured, Work, _gpu_lines, count_work, estimate_lines
from trainer.run.memory import count_parameters
from trainer.run.units import open_unit


def count(recipe: Recipe, vocab_size: int) -> Work:
    return count_work(recipe.curriculum, recipe.loss, vocab_size)


def test_operations_are_about_six_for_each_parameter_and_token():
    """The rule of thumb, for rows so short that attention hardly counts; half of the model sees source, half target."""
    recipe = load_recipe("longt5_tglobal_large", ["data.source_length=256", "data.target_length=260"])
    work = count(recipe, 1)
    tokens = work.positions
    assert tokens == 1_000_000 * recipe.run.batch_size * 256
    assert work.flops == pytest.approx(6 * count_parameters(recipe.model) * tokens, rel=0.15)


def test_stages_add_up_and_noise_passes_batches_twice():
    recipe = load_recipe("tiny")
    whole = count(recipe, 100)
    longer = replace(recipe, run=replace(recipe.run, extend=(60,)))
    assert count(longer, 100).flops == 2 * whole.flops
    assert count(load_recipe("tiny", ["loss.r3f={weight=1.0}"]), 100).flops == 2 * whole.flops


def test_hours_of_gpus():
    text = "\n".join(_gpu_lines(Work(3.6e18, 10, 1000, 1.0)))
    for name, peak in PEAKS.items():
        low, high = (3.6e18 / (peak * 1e12 * share) / 3600 for share in reversed(UTILISATION))
        assert f"{name} ({peak:g} TFLOP/s): {low:,.1f} to {high:,.1f} GPU hours" in text


def test_the_first_update_counts_once():
    measured = Measured(60.0, (1.0, 1.0, 2.0, 2.0), 0)
    low, high = measured.whole(Work(0, 100, 0, 0), 2)
    assert (low, high) == pytest.approx((0.9 * (60 + 200 * 1.25), 1.1 * (60 + 200 * 1.75)))


class Machine(TorchDispatchMode):
    """A machine on which each number that an operation reads or writes takes 10 ns, with its clock."""

    now = 0.0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        numbers = tree_leaves((args, kwargs, result))
        self.now += 1e-8 * sum(number.numel() for number in numbers if isinstance(number, Tensor))
        return result


@pytest.mark.parametrize(("length", "width"), [(512, 32), pytest.param(1024, 64, marks=pytest.mark.slow)])
def test_a_run_takes_as_long_as_was_estimated(tmp_path, monkeypatch, length, width):
    """Within a quarter, at two sizes, by the clock of a machine whose speed is constant."""
    machine = Machine()
    monkeypatch.setattr("trainer.parallel.device.time", SimpleNamespace(perf_counter=lambda: machine.now))
    monkeypatch.setattr("trainer.run.estimate.SECONDS", 1.0)
    recipe = load_recipe(
        "tiny",
        [
            f"data.corpus={make_corpus(str(tmp_path / 'corpus'), sequence_length=length)}",
            *('data.objective={name="span"}', f"data.source_length={length}", "data.target_length=512"),
            *(f"model.width={width}", "run.steps=12", f"run.directory={tmp_path / 'run'}"),
        ],
    )
    with machine:
        list(estimate_lines(recipe, 400))
        begun = machine.now
        train_quietly(recipe)
    low, high = json.loads((tmp_path / "run.estimate.json").read_text())["estimate"]["seconds"]
    assert (low + high) / 2 == pytest.approx(machine.now - begun, rel=0.25)


def test_a_run_is_estimated_on_its_data_and_compared_when_it_ends(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("trainer.run.estimate.SECONDS", 0.2)
    sets = (
        f"data.corpus={make_corpus(str(tmp_path / 'corpus'))}", 'data.objective={name="span"}',
        "data.source_length=512", "data.target_length=256", "model.width=32", "run.batch_size=2",
        "run.micro_batch_size=1", "run.epochs=0.2",
        "metrics.peak_tflops=1.0", "schedule.warmup_steps=0", f"run.directory={tmp_path / 'run'}", "run.dry_run=false",
    )  # fmt: skip
    with patch("trainer.run.estimate.open_unit", wraps=open_unit) as opening:
        run_command(Training(recipe="tiny", assignments=sets, estimate=0))
    opening.assert_called_once()
    first, *_, said = capsys.readouterr().out.splitlines()
    rows = open_unit(load_recipe("tiny", sets)).special.vocab_size
    assert f"{rows} token rows" in first
    assert re.match(r"this machine: [\d.]+ s to [\d.]+ s in one process, .* from \d+ micro-batches", said)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["corpus", "run.estimate.json"]
    run_command(Training(recipe="tiny", assignments=sets))
    assert re.search(r"^took [\d.]+ s, estimated [\d.]+ s to [\d.]+ s$", capsys.readouterr().err, re.MULTILINE)
    assert compare_estimate(str(tmp_path / "run"), 1.0, steps=10**6) is None  # a run of other steps
    assert json.loads((tmp_path / "run.estimate.json").read_text())["actual"]["seconds"] > 0


SOURCE, TARGET, SMALL_VOCAB = 512, 64, 100
RECIPES = ["tiny", "tiny_cdlm", "tiny_global", "tiny_led", "tiny_longt5_local", "tiny_longt5_tglobal", "tiny_overlap",
           "tiny_pegasus_x", "tiny_pegasus_x, globals", "tiny_t5gemma2"]  # fmt: skip


def config_of(recipe: str):
    """A recipe's model, or PEGASUS-X with cross-attention to its learned tokens."""
    config = replace(load_recipe(recipe.removesuffix(", globals")).model, dropout=0.1)
    if recipe.endswith("globals"):
        config = replace(config, decoder=replace(config.decoder, global_cross_attention=True))
    attention: Any = config.encoder.attention
    if hasattr(attention, "size"):
        attention = replace(attention, size=128)
    return replace(config, encoder=replace(config.encoder, attention=attention))


def inputs_of(config):
    torch.manual_seed(0)
    source, target = torch.randint(SMALL_VOCAB, (1, SOURCE)), torch.randint(SMALL_VOCAB, (1, TARGET))
    first = torch.arange(SOURCE)[None] == 0
    if config.decoder is None:
        labels = source.masked_fill(torch.arange(SOURCE) >= TARGET, -100)
        return {"source_ids": source, "labels": labels, "global_positions": first}
    return {"source_ids": source, "decoder_ids": target, "labels": target, "global_positions": first}


def saved_bytes(model, config, precision: str) -> int:
    """Bytes that autograd saves, without weights and autocast's copies of them."""
    saved = []  # holds the tensors, so that no storage is given away and counted as one with a later one
    autocast = torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16")
    with torch.autograd.graph.saved_tensors_hooks(lambda x: saved.append(x) or x, lambda x: x), autocast:
        model(**inputs_of(config))
    weights = {x.untyped_storage().data_ptr() for x in model.parameters()}
    storages = {
        x.untyped_storage().data_ptr(): x.untyped_storage().nbytes()
        for x in saved
        if x.grad_fn is None or x.grad_fn.name() != "TBackward0"
    }
    return sum(size for pointer, size in storages.items() if pointer not in weights)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("recipe", RECIPES)
def test_fake_tensors_save_what_real_ones_do(recipe, precision):
    config = config_of(recipe)
    model = build_model(config, SMALL_VOCAB, seed=0).train()
    known = activations(config, SOURCE, TARGET, Numbers(precision, "cpu"), batch=1)
    assert saved_bytes(model, config, precision) == pytest.approx(known.saved_bytes("none"), rel=0.03)
    apply_activation_checkpointing(model, "layer")
    # Layers of the decoder hold the encoder's output where the hooks do not see it.
    again = known.saved_bytes("layer") - known.encoder_output
    assert saved_bytes(model, config, precision) == pytest.approx(again, rel=0.03)


@pytest.mark.parametrize(
    "changes",
    [
        {"dropout": 0.0},
        {"activation_dropout": 0.1},
        {"feed_forward": replace(load_recipe("tiny").model.feed_forward, activation="relu")},
        {"feed_forward": replace(load_recipe("tiny").model.feed_forward, gated=True), "activation_dropout": 0.1},
        {"norm": replace(load_recipe("tiny").model.norm, placement="pre", kind="rms")},
        {"embedding": replace(load_recipe("tiny").model.embedding, norm=False)},
    ],
)
def test_every_part_of_a_model_is_counted(changes):
    config = replace(config_of("tiny"), **changes)
    known = activations(config, SOURCE, TARGET, Numbers("fp32", "cpu"), batch=1).saved_bytes("none")
    model = build_model(config, SMALL_VOCAB, seed=0).train()
    assert saved_bytes(model, config, "fp32") == pytest.approx(known, rel=0.01)


class Products(TorchDispatchMode):
    """Bytes that matrix products and fused attention give."""

    NAMES = ("aten.mm.default", "aten.addmm.default", "aten._scaled_dot_product_flash_attention_for_cpu.default")

    def __init__(self) -> None:
        super().__init__()
        self.bytes = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        if str(func) in self.NAMES:
            parts = result if isinstance(result, tuple) else (result,)
            self.bytes += sum(part.nbytes for part in parts)
        return result


@pytest.mark.parametrize("recipe", ["tiny", "tiny_longt5_tglobal", "tiny_pegasus_x"])
def test_selective_checkpointing_saves_products(recipe):
    config = config_of(recipe)
    model = build_model(config, SMALL_VOCAB, seed=0).train()
    extra = config.encoder.attention.extra_tokens
    x = torch.randn(1, extra + SOURCE, config.width)
    context = model.encoder._with_positions(make_context(), SOURCE, x.device)
    known = activations(config, SOURCE, TARGET, Numbers("fp32", "cpu"), batch=1).layers
    for index, layer in enumerate(model.encoder.layers):
        with Products() as seen:
            layer(x, context, extra)
        assert seen.bytes == pytest.approx(known[index].products, rel=0.03)


def test_a_decoder_layer_saves_products_of_both_attentions():
    config = config_of("tiny")
    model: Any = build_model(config, SMALL_VOCAB, seed=0).train()
    target, source = torch.randn(1, TARGET, config.width), EncoderOutput(torch.randn(1, SOURCE, config.width))
    with Products() as seen:
        model.decoder.layers[0](target, source, Context())
    known = activations(config, SOURCE, TARGET, Numbers("fp32", "cpu"), batch=1).layers[-1]
    assert seen.bytes == pytest.approx(known.products, rel=0.01)
