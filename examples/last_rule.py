"""A rule that comes last in the source: a model adapted from a decoder, one from scratch, one with a causal encoder.

A source is five different digits and a rule, the number to add to each of them modulo 10; the target is the results in
ascending order. A decoder of Gemma 3's shape learns this language first, as sources followed by their targets. Then
``farspan convert`` makes an encoder-decoder of it, and three models are trained on sources and targets apart:

- ``adapted``: the converted one, whose encoder attends in both directions, so that digits can take the rule in;
- ``causal``: the converted one with a causal encoder, whose digits do not know the rule;
- ``scratch``: the architecture of the first, with new weights.

Each stack has one layer, so that the decoder cannot read the rule first and the digits by it in a later layer.

    python examples/last_rule.py --seeds 5
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import Gemma3ForCausalLM, Gemma3TextConfig

from pipelines.study.table import quantile
from trainer.conversion.convert import convert
from trainer.conversion.model_folder import Model
from trainer.model.build import build_model, make_model
from trainer.model.seq2seq import Seq2Seq
from trainer.options import Conversion

END, BEGIN, DIGITS, RULES, VOCABULARY = 1, 2, 3, 13, 23
"""Ids: the end, the begin, ten digits, ten rules; 0 is padding."""

COUNT = 5
"""Digits of a source."""

ARMS = ("adapted", "causal", "scratch")
ROWS, HELD_OUT, RATE = 64, 512, 1e-3


class Rows(NamedTuple):
    """Examples: ``(B, 7)`` sources with begin and rule, ``(B, 6)`` decoder inputs and labels with begin and end."""

    source: Tensor
    inputs: Tensor
    labels: Tensor


def make_rows(count: int, generator: torch.Generator) -> Rows:
    """Draw ``count`` examples."""
    digits = torch.rand(count, 10, generator=generator).argsort(1)[:, :COUNT]
    rules = torch.randint(10, (count, 1), generator=generator)
    results = ((digits + rules) % 10).sort(1).values
    begin = torch.full((count, 1), BEGIN)
    source = torch.cat([begin, digits + DIGITS, rules + RULES], 1)
    inputs = torch.cat([begin, results + DIGITS], 1)
    return Rows(source, inputs, torch.cat([inputs[:, 1:], torch.full((count, 1), END)], 1))


def steps(model: nn.Module, count: int, rate: float, generator: torch.Generator) -> Iterator[Rows]:
    """Yield the rows of ``count`` updates by Adam, whose gradients the caller computes."""
    optimizer = torch.optim.Adam(model.parameters(), lr=rate, betas=(0.9, 0.98))
    for step in range(count):
        for group in optimizer.param_groups:
            group["lr"] = rate * min(1.0, (step + 1) / 20)
        optimizer.zero_grad()
        yield make_rows(ROWS, generator)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()


def train_decoder(count: int, seed: int) -> Gemma3ForCausalLM:
    """Train a decoder of Gemma 3's shape on sources followed by their targets."""
    rotary = {"rope_type": "default", "rope_theta": 10_000.0}
    config = Gemma3TextConfig(
        vocab_size=VOCABULARY, hidden_size=48, intermediate_size=96, num_hidden_layers=1, num_attention_heads=4,
        num_key_value_heads=2, head_dim=12, query_pre_attn_scalar=12, sliding_window=8, pad_token_id=0, eos_token_id=1,
        bos_token_id=2, layer_types=["full_attention"], initializer_range=48**-0.5,
        rope_parameters={"full_attention": rotary, "sliding_attention": rotary},
    )  # fmt: skip
    torch.manual_seed(seed)
    model = Gemma3ForCausalLM(config)
    for rows in steps(model, count, 3e-3, torch.Generator().manual_seed(seed)):
        ids = torch.cat([rows.source, rows.inputs[:, 1:], rows.labels[:, -1:]], 1)
        logits = model(input_ids=ids[:, :-1]).logits
        F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten()).backward()
    return model.eval()


def adapt(decoder: Gemma3ForCausalLM) -> Model:
    """Make an encoder-decoder by ``farspan convert``."""
    with tempfile.TemporaryDirectory() as folder:
        decoder.save_pretrained(Path(folder, "decoder"))
        return convert(Path(folder, "decoder"), Path(folder, "adapted"), Conversion())


def make_arm(arm: str, adapted: Model, seed: int) -> Seq2Seq:
    """Make the model of an arm before its training."""
    config = adapted.config
    assert config.decoder
    assert config.decoder.attention
    if arm == "causal":
        config = replace(config, encoder=replace(config.encoder, attention=config.decoder.attention))
    model = build_model(config, VOCABULARY, seed) if arm == "scratch" else make_model(config, VOCABULARY)
    if arm != "scratch":
        model.load_state_dict({name: tensor.clone() for name, tensor in adapted.state.items()})
    assert isinstance(model, Seq2Seq)
    return model


def learn(model: Seq2Seq, stops: tuple[int, ...], seed: int) -> list[float]:
    """Train; return the percentage of wrong tokens in held-out rows after each number of updates in ``stops``."""
    held_out, found = make_rows(HELD_OUT, torch.Generator().manual_seed(2000 + seed)), []
    for step, rows in enumerate(steps(model.train(), stops[-1] + 1, RATE, torch.Generator().manual_seed(1000 + seed))):
        if step in stops:
            with torch.inference_mode():
                states = model.encode(held_out.source)
                chosen = model.logits(model.decode(held_out.inputs, states)).argmax(-1)
            found.append(100 * float((chosen != held_out.labels).float().mean()))
        (model(rows.source, rows.inputs, rows.labels).minimised / rows.labels.numel()).backward()
    return found


def main(arguments: list[str] | None = None) -> None:
    """Print the errors of each seed and arm, and the mean differences to ``adapted`` with their intervals."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--decoder-steps", type=int, default=3000)
    parser.add_argument("--stops", type=int, nargs="+", default=[100, 200, 300])
    options = parser.parse_args(arguments)
    errors = np.zeros((len(ARMS), options.seeds, len(options.stops)))
    for seed in range(options.seeds):
        adapted = adapt(train_decoder(options.decoder_steps, seed))
        for number, arm in enumerate(ARMS):
            errors[number, seed] = learn(make_arm(arm, adapted, seed), tuple(options.stops), seed)
            print(seed, arm, errors[number, seed].round(1).tolist(), flush=True)
    for number, arm in enumerate(ARMS):
        print(arm, "mean", errors[number].mean(0).round(1).tolist())
        if number and options.seeds > 1:
            gaps = errors[number] - errors[0]
            half = quantile(options.seeds - 1) * gaps.std(0, ddof=1) / options.seeds**0.5
            print(arm, "minus adapted", gaps.mean(0).round(1).tolist(), "+-", half.round(1).tolist())


if __name__ == "__main__":
    main()
