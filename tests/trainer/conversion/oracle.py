"""Hugging Face's models as oracles: random weights, and what the same weights give here."""

from __future__ import annotations

import os

os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

import torch

from trainer.conversion.names import load_state, state_shapes
from trainer.model.build import make_model

VOCAB = 37
LEAST_ID = 3  # 0, 1 and 2 begin, pad and end a text


def disturbed(model, scale=0.1, seed=0):
    """The model for evaluation, every parameter and bias away from its first value."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += scale * torch.randn(parameter.shape, generator=generator)
    return model.eval()


def ours(family, theirs):
    """Our model with the weights of ``theirs``, through the family's own reading."""
    config = family.read_config(theirs.config.to_dict())
    with torch.device("meta"):
        model = make_model(config, theirs.config.vocab_size)
    shapes = state_shapes(config, theirs.config.vocab_size)
    state = load_state(family.name_map(config), theirs.state_dict(), shapes, family.IGNORED)
    model.load_state_dict({name: tensor.clone() for name, tensor in state.items()}, assign=True)
    return model.requires_grad_().eval()


def text(lengths, pad=1, seed=0, high=VOCAB):
    """``(B, L)`` int64 ids below ``high`` and ``(B, L)`` bool, rows of ``lengths`` padded on the right."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(LEAST_ID, high, (len(lengths), max(lengths)), generator=generator)
    real = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    return ids.masked_fill(~real, pad), real


def assert_same_gradients(family, theirs, model, tolerance=1e-5):
    """Every parameter's gradient is that of its stored counterparts, joined as the weights are."""
    config = family.read_config(theirs.config.to_dict())
    stored = {
        name: torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        for name, parameter in theirs.named_parameters(remove_duplicate=False)
    }
    for name, tensors in family.name_map(config).items():
        expected = torch.cat([stored[part][tensors.skip_rows :] for part in tensors.names])
        found = model.get_parameter(name).grad
        found = torch.zeros_like(expected) if found is None else found
        difference = (found - expected).abs().max().item()
        assert difference <= tolerance * max(1.0, expected.abs().max().item()), (name, difference)


def assert_same_seq2seq(
    family, theirs, source_lengths, target_length=5, pad=1, tolerance=1e-5, global_positions=None, **inputs
):
    """Same logits and same gradients on rows of ``source_lengths``; the model of ours."""
    model = ours(family, theirs)
    ids, real = text(source_lengths, pad)
    if global_positions is not None:
        inputs["global_attention_mask"] = global_positions.long()
    target, _ = text([target_length] * len(source_lengths), seed=1)
    expected = theirs(input_ids=ids, attention_mask=real.long(), decoder_input_ids=target, **inputs).logits
    memory = model.encode(ids, None if real.all() else real, global_positions=global_positions)
    found = model.logits(model.decode(target, memory))
    assert 0.1 < expected.std() < 30, "weights of another scale would make the comparison worth less"
    torch.testing.assert_close(found, expected, atol=tolerance, rtol=tolerance)
    weights = torch.randn(expected.shape, generator=torch.Generator().manual_seed(2)) / expected.numel() ** 0.5
    theirs.zero_grad()
    (expected * weights).sum().backward()
    (found * weights).sum().backward()
    assert_same_gradients(family, theirs, model, tolerance)
    return model


def assert_same_masked_lm(family, theirs, lengths, pad=1, tolerance=1e-5, global_positions=None, **inputs):
    """The same of a masked language model, at real positions."""
    model = ours(family, theirs)
    ids, real = text(lengths, pad)
    if global_positions is not None:
        inputs["global_attention_mask"] = global_positions.long()
    expected = theirs(input_ids=ids, attention_mask=real.long(), **inputs).logits[real]
    encoded = model.encode(ids, None if real.all() else real, global_positions=global_positions)
    found = model.logits(encoded)[real]
    torch.testing.assert_close(found, expected, atol=tolerance, rtol=tolerance)
    weights = torch.randn(expected.shape, generator=torch.Generator().manual_seed(2)) / expected.numel() ** 0.5
    theirs.zero_grad()
    (expected * weights).sum().backward()
    (found * weights).sum().backward()
    assert_same_gradients(family, theirs, model, tolerance)
    return model
