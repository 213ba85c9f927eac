from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from objectives.api.examples import IGNORED
from tests.trainer.toy import ToySource, toy_recipe
from trainer.data.config import DataConfig
from trainer.metrics import perplexity
from trainer.model.build import build_model
from trainer.parallel.distributed import World
from trainer.run.evaluation import HeldOut, describe, evaluate

DATA = DataConfig(source_length=24, target_length=12)


class Rank(World):
    """One of several that are asked in turn; ``sum`` adds to what the ranks before it had."""

    def sum(self, *numbers):
        self.before[:] = [old + new for old, new in zip(self.before or [0] * len(numbers), numbers, strict=True)]
        return tuple(self.before)


def rank_of(size: int, rank: int, before: list[float]) -> Rank:
    made = Rank(rank, size, 0, 1, torch.device("cpu"))
    object.__setattr__(made, "before", before)
    return made


def toy_loss(batch):
    """A number that hangs on every label and on which source stands beside it."""
    asked = batch.labels != IGNORED
    return ((batch.labels + 0.1 * batch.source_ids.sum(1, keepdim=True)) * asked).sum()


def held_out(sizes=(9, 5), sequences=7, micro_batch_size=2):
    return [HeldOut(f"source{size}", ToySource(size), DATA, sequences, micro_batch_size) for size in sizes]


def by_hand(one: HeldOut) -> tuple[float, int]:
    rows = ToySource(len(one.source)).examples(np.arange(min(one.sequences, len(one.source))))
    total, tokens = 0.0, 0
    for source, length, target, asked in zip(
        rows.source_ids, rows.source_lengths, rows.target_ids, rows.target_lengths, strict=True
    ):
        total += sum(token + 0.1 * source[:length].sum() for token in target[:asked])
        tokens += asked
    return total, tokens


def test_each_source_and_all_by_their_tokens():
    sources = held_out()
    record = evaluate(torch.nn.Identity(), toy_loss, sources, World.alone())
    sums = [by_hand(one) for one in sources]
    for one, (total, tokens) in zip(sources, sums, strict=True):
        assert record[f"held_out_loss/{one.name}"] == pytest.approx(total / tokens, rel=1e-6)
    together = sum(total for total, _ in sums) / sum(tokens for _, tokens in sums)
    assert record["held_out_loss"] == pytest.approx(together, rel=1e-6)
    assert record["held_out_perplexity"] == perplexity(record["held_out_loss"])


@settings(max_examples=30, deadline=None)
@given(size=st.integers(1, 5), sizes=st.lists(st.integers(1, 9), min_size=1, max_size=3), micro=st.integers(1, 4))
def test_any_number_of_ranks_finds_the_same_in_equally_many_passes(size, sizes, micro):
    sources = held_out([*sizes], sequences=6, micro_batch_size=micro)
    alone = evaluate(torch.nn.Identity(), toy_loss, sources, World.alone())
    before: list[float] = []
    passes = [0] * size
    for rank in range(size):

        def counted(batch, rank=rank):
            passes[rank] += 1
            return toy_loss(batch)

        found = evaluate(torch.nn.Identity(), counted, sources, rank_of(size, rank, before))
    assert found == pytest.approx(alone, rel=1e-12)  # the last rank has seen the sums of all
    assert len(set(passes)) == 1


def test_dropout_is_off_and_the_model_left_as_it_was():
    recipe = toy_recipe("unused", dropout=0.5)
    model = build_model(recipe.model, ToySource().special.vocab_size, seed=0)
    sources = held_out((9,))

    def loss(batch):
        assert not torch.is_grad_enabled()
        return model(**batch.inputs).plain

    model.train()
    state = torch.get_rng_state()
    first, again = (evaluate(model, loss, sources, World.alone()) for _ in range(2))
    assert first == again
    assert set(first) == {"held_out_loss", "held_out_perplexity"}
    assert model.training
    assert torch.equal(torch.get_rng_state(), state)


def test_a_loss_that_is_not_finite_is_none_and_said():
    record = evaluate(torch.nn.Identity(), lambda batch: torch.tensor(math.nan), held_out(), World.alone())
    assert set(record.values()) == {None}
    assert describe(record) == "held-out loss not finite (source9 not finite, source5 not finite)"


def test_what_is_found_is_said():
    assert describe({"held_out_loss": 1.25, "held_out_perplexity": 3.49}) == "held-out loss 1.2500"
