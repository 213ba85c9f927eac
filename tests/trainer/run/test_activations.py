from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from trainer.model.build import build_model
from trainer.model.context import Context, make_context
from trainer.model.decoder import EncoderOutput
from trainer.parallel.wrapping import apply_activation_checkpointing
from trainer.recipe import load_recipe
from trainer.run.activations import Numbers, activations

SOURCE, TARGET, VOCAB = 512, 64, 100
RECIPES = ["tiny", "tiny_cdlm", "tiny_global", "tiny_led", "tiny_longt5_local", "tiny_longt5_tglobal", "tiny_overlap",
           "tiny_pegasus_x", "tiny_pegasus_x, globals", "tiny_t5gemma2"]  # fmt: skip


def config_of(recipe: str):
    """A recipe's model, or PEGASUS-X with cross-attention to its learned tokens."""
    config = replace(load_recipe(recipe.removesuffix(", globals")).model, dropout=0.1)
    if recipe.endswith("globals"):
        config = replace(config, decoder=replace(config.decoder, global_cross_attention=True))
    attention = config.encoder.attention
    if hasattr(attention, "size"):
        attention = replace(attention, size=128)
    return replace(config, encoder=replace(config.encoder, attention=attention))


def precisely(precision: str):
    return torch.autocast("cpu", torch.bfloat16) if precision == "bf16" else nullcontext()


def inputs_of(config):
    torch.manual_seed(0)
    source, target = torch.randint(VOCAB, (1, SOURCE)), torch.randint(VOCAB, (1, TARGET))
    first = torch.arange(SOURCE)[None] == 0
    if config.decoder is None:
        labels = source.masked_fill(torch.arange(SOURCE) >= TARGET, -100)
        return {"source_ids": source, "labels": labels, "global_positions": first}
    return {"source_ids": source, "decoder_ids": target, "labels": target, "global_positions": first}


def saved_bytes(model, config, precision: str) -> int:
    """Bytes that autograd saves, without weights and autocast's copies of them."""
    saved = []  # holds the tensors, so that no storage is given away and counted as one with a later one
    with torch.autograd.graph.saved_tensors_hooks(lambda x: saved.append(x) or x, lambda x: x), precisely(precision):
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
    model = build_model(config, VOCAB, seed=0).train()
    known = activations(config, SOURCE, TARGET, Numbers(precision, "cpu"), batch=1)
    assert saved_bytes(model, config, precision) == pytest.approx(known.saved_bytes("none"), rel=0.03)
    apply_activation_checkpointing(model, "layer")
    # Layers of the decoder hold the encoder's output where the hooks do not see it.
    assert saved_bytes(model, config, precision) == pytest.approx(
        known.saved_bytes("layer") - known.encoder_output, rel=0.03
    )


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
    known = activations(config, SOURCE, TARGET, Numbers("fp32", "cpu"), batch=1)
    assert saved_bytes(build_model(config, VOCAB, seed=0).train(), config, "fp32") == pytest.approx(
        known.saved_bytes("none"), rel=0.01
    )


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
    model = build_model(config, VOCAB, seed=0).train()
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
    model = build_model(config, VOCAB, seed=0).train()
    with Products() as seen:
        model.decoder.layers[0](
            torch.randn(1, TARGET, config.width), EncoderOutput(torch.randn(1, SOURCE, config.width)), Context()
        )
    known = activations(config, SOURCE, TARGET, Numbers("fp32", "cpu"), batch=1).layers[-1]
    assert seen.bytes == pytest.approx(known.products, rel=0.01)
