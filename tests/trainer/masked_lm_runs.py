"""Scorers for tests, their inputs, what they should say, and runs that train one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from objectives.api.examples import IGNORED
from objectives.api.special_tokens import MASK, SpecialTokens
from tests.trainer.toy import ToySource, toy_recipe
from trainer.model.config import EncoderConfig
from trainer.model.patterns.full import Full
from trainer.model.positions import Learned
from trainer.scorer.scorers import load_scorer


def scorer_of(path, **options):
    load_scorer.cache_clear()
    return load_scorer(str(path), **{"device": "cpu", **options})


def masked_rows(special: SpecialTokens, lengths, vocab, seed=0, share=0.3):
    """Rows of ``lengths`` random tokens between the begin and end in ``special``: ids, lengths, labels."""
    rng = np.random.default_rng(seed)
    begin, end = ([special.ids[name]] if name in special.ids else [] for name in ("<bos>", "<eos>"))
    sizes = np.array(lengths, np.int32) + len(begin) + len(end)
    ids = np.full((len(sizes), sizes.max(initial=0)), special["<pad>"], np.int32)
    labels = np.full_like(ids, IGNORED)
    for row, length in enumerate(lengths):
        text = rng.integers(5, vocab, length)
        hidden = rng.random(length) < share
        inside = slice(len(begin), len(begin) + length)
        labels[row, inside] = np.where(hidden, text, IGNORED)
        ids[row, : sizes[row]] = [*begin, *np.where(hidden, special[MASK], text), *end]
    return ids, sizes, labels


def plain_losses(logits, special, room, ids, lengths, labels):
    """One unpadded window at a time: ``logits`` of ``(1, n)`` ids is ``(1, n, V)``; all in float64 behind it."""
    losses = np.zeros(ids.shape)
    begin, end = ([special.ids[name]] if name in special.ids else [] for name in ("<bos>", "<eos>"))
    for row, length in enumerate(lengths):
        places = np.arange(len(begin), length - len(end))
        for window in (places[i : i + room] for i in range(0, len(places), room)):
            shown = torch.tensor([[*begin, *ids[row, window], *end]])
            with torch.no_grad():
                scores = logits(shown)[0, len(begin) :].double()
            for i, place in enumerate(window):
                if labels[row, place] != IGNORED:
                    losses[row, place] = torch.logsumexp(scores[i], 0) - scores[i, labels[row, place]]
    return losses


class MaskedSource(ToySource):
    """Every third token of a toy sequence is asked for; framed by begin and end, or not."""

    def __init__(self, framed=True, **options):
        super().__init__(encoder_only=True, **options)
        self.special = SpecialTokens.append(24, {"<pad>": 0, "<bos>": 1, "<eos>": 2}, [MASK])
        self.framed = framed

    def examples(self, indices):
        plain = super().examples(indices)
        ids, labels = plain.source_ids.copy(), np.full_like(plain.source_ids, IGNORED)
        labels[:, 2::3] = ids[:, 2::3]
        ids[:, 2::3] = self.special[MASK]
        if self.framed:
            rows = np.arange(len(ids))
            for place, token in ((0, 1), (plain.source_lengths - 1, 2)):
                ids[rows, place], labels[rows, place] = token, IGNORED
        real = plain.source_mask
        return replace(plain, source_ids=np.where(real, ids, 0), labels=np.where(real, labels, IGNORED))


def encoder_recipe(directory, **run):
    recipe = toy_recipe(directory, **run)
    encoder = EncoderConfig(layers=2, positions=Learned(24), attention=Full())
    return replace(
        recipe,
        model=replace(recipe.model, decoder=None, encoder=encoder),
        schedule=replace(recipe.schedule, warmup_steps=1),
        run=replace(recipe.run, steps=2),
    )
