"""Search for texts: candidates for the next token, unfinished texts, and the best ended text of each sample.

Scores lie on a grid; ties are decided by the lowest beam and id. Draws are keyed by the seed of the sample, so that
they do not depend on the batch.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from corpora.keyed import make_key
from trainer.generation.config import DecoderIds, GenerationConfig

STEPS = 2.0**22
"""Steps of the grid per unit of log-probability.

On a grid, sums are exact, so that scores do not depend on the order of additions, and equal scores are ordered by beam
and id. A coarse grid would not make texts more alike on different processors: noise moves values across its steps as
often as past each other. It makes ties of continuations that differ: with 2^16 steps, 1 of 894 texts was worse.
"""


def round_to_grid(logits: Tensor) -> Tensor:
    """Round log-probabilities to multiples of 1 / ``STEPS``, so that their sums are exact; ``(R, V)`` float64.

    Logits of lower precision are widened to float32 first.
    """
    return torch.log_softmax(logits.float(), -1).double().mul_(STEPS).round_().div_(STEPS)


def best_tokens(log_probs: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The ``count`` best tokens of each row of ``log_probs``, ``(R, V)`` on the grid; the lowest id first among equals.

    Returns values and ids, ``(R, count)``, in descending order.
    """
    vocabulary = log_probs.shape[1]
    # exact, because 2^7 * 2^22 steps and ids below 2^20 fit into the 53 bits of a float64
    keys = log_probs * (STEPS * vocabulary) - torch.arange(vocabulary, device=log_probs.device)
    ids = keys.topk(count, dim=1).indices
    return log_probs.gather(1, ids), ids


def best_candidates(log_probs: Tensor, live: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor]:
    """The ``count`` best continuations of a sample's texts; among equals the lowest beam, then the lowest id.

    Given ``log_probs``, ``(n * K, V)`` on the grid, and those of the texts so far, ``live``, ``(n, K)`` float64,
    returns log-probabilities, beams and ids, each ``(n, count)``, in descending order.
    """
    samples, beams = live.shape
    values, ids = best_tokens(log_probs, min(count, log_probs.shape[1]))
    each = values.shape[1]
    totals = (live[..., None] + values.view(samples, beams, each)).flatten(1)
    # A stable sort keeps equal totals in the order of beams and ids.
    totals, order = totals.sort(dim=1, descending=True, stable=True)
    order = order[:, :count]
    return totals[:, :count], order // each, ids.view(samples, -1).gather(1, order)


def uniforms(seeds: np.ndarray, config: GenerationConfig) -> np.ndarray:
    """Draw ``(n, max_tokens + 1)`` float64 in [0, 1), a row for each of the ``(n,)`` uint64 sample seeds."""
    run_seed = int.from_bytes(make_key(config.seed, "generation")[:8], "little")
    keys = (np.array([run_seed, seed], np.uint64) for seed in seeds.tolist())
    return np.stack([np.random.Generator(np.random.Philox(key=key)).random(config.max_tokens + 1) for key in keys])


def draw(log_probs: Tensor, uniform: Tensor, config: GenerationConfig) -> Tensor:
    """Draw one token for each row, by inverting the cumulative distribution in the order of ids; ``(R,)`` int64.

    ``log_probs``, ``(R, V)`` float64, are minus infinity for forbidden tokens; ``uniform`` is ``(R,)`` float64 in [0,
    1). Temperature, top_k and top_p of ``config`` are applied in this order.
    """
    # the best token is at 0, so that a low temperature cannot take all of them to minus infinity
    scaled = (log_probs - log_probs.amax(1, keepdim=True)) / config.temperature
    if config.top_k or config.top_p < 1:
        count = min(config.top_k or scaled.shape[1], scaled.shape[1])
        ids = best_tokens(log_probs, count)[1]
        chosen = scaled.gather(1, ids)
        shares = chosen.softmax(-1)
        before = shares.cumsum(-1) - shares  # probability of all better tokens
        chosen = chosen.masked_fill(before >= config.top_p, float("-inf"))
        scaled = torch.full_like(scaled, float("-inf")).scatter(1, ids, chosen)
    cumulative = scaled.softmax(-1).cumsum(-1)
    threshold = uniform[:, None] * cumulative[:, -1:]
    return torch.searchsorted(cumulative, threshold, right=True)[:, 0].clamp(max=scaled.shape[1] - 1)


_NEVER = float("-inf")


def constrain(
    log_probs: Tensor, history: Tensor, positions: Tensor, step: int, config: GenerationConfig, ids: DecoderIds
) -> Tensor:
    """Set the log-probabilities ``(R, V)`` of forbidden tokens to minus infinity; all others keep their value.

    ``history``, ``(R, P)`` int64, has the decoder ids with the start, arbitrary after ``positions``, ``(R,)`` int64, of
    each text's last token; ``step`` tokens were generated so far. If no token is allowed, the end is.
    """
    forced = config.first_tokens[step] if step < len(config.first_tokens) else None
    if step >= config.max_tokens:
        forced = ids.end
    if forced is not None:
        only = torch.full_like(log_probs, _NEVER)
        only[:, forced] = log_probs[:, forced]
        return only
    ends = log_probs[:, ids.end].clone()
    log_probs = log_probs.clone()
    log_probs[:, ids.pad] = _NEVER
    if step < config.min_tokens:
        log_probs[:, ids.end] = _NEVER
    if config.no_repeat_ngram:
        log_probs = without_repeats(log_probs, history, positions, config.no_repeat_ngram)
    if log_probs.shape[1] <= history.shape[1] + 2:  # so few tokens that all may be forbidden
        nothing = (log_probs == _NEVER).all(1)
        log_probs[:, ids.end] = torch.where(nothing, ends, log_probs[:, ids.end])
    return log_probs


def without_repeats(log_probs: Tensor, history: Tensor, positions: Tensor, size: int) -> Tensor:
    """Forbid each token that would complete an n-gram of ``size`` tokens that its text already has.

    Arguments and result as in ``constrain``.
    """
    before = size - 1
    if history.shape[1] <= before:
        return log_probs
    places = torch.arange(before, device=history.device)
    last = history.gather(1, (positions[:, None] - before + 1 + places).clamp(min=0))  # (R, n - 1)
    windows = history.unfold(1, size, 1)  # (R, P - n + 1, n)
    ends = torch.arange(before, history.shape[1], device=history.device)  # position of each window's last token
    same = (windows[..., :before] == last[:, None]).all(-1)
    same &= (ends <= positions[:, None]) & (positions[:, None] >= before - 1)
    forbidden = torch.full_like(windows[..., -1], 0, dtype=log_probs.dtype).masked_fill(same, _NEVER)
    # minimum, because a token is forbidden if any window forbids it
    forbidden = forbidden.masked_fill(~same, float("inf"))
    return log_probs.scatter_reduce(1, windows[..., -1], forbidden, "amin")


class Texts:
    """``n`` samples with K texts each.

    Attributes:
        history: ``(n, K, P)`` int64, decoder ids; arbitrary after the position.
        positions: ``(n,)`` int64, position of the last token of a sample's texts.
        live: ``(n, K)`` float64, log-probabilities of the texts.
        kept: ``(n, K)`` float64, scores of the best ended texts, in descending order.
        best: ``(n, P)`` int64, decoder ids of the best ended text, without its end.
        best_length: ``(n,)`` int64, number of its tokens, without prompt and end.
        done: ``(n,)`` bool, True if the sample's result is final.
        samples: ``(n,)`` int64 on the host, number of each sample, and ``starts``, the length of its prefix.
        step: number of tokens generated so far.
    """

    def __init__(
        self,
        prefixes: list[np.ndarray],
        config: GenerationConfig,
        ids: DecoderIds,
        uniforms: np.ndarray | None,
        device: torch.device,
    ) -> None:
        """Start the texts with the ``prefixes`` of the decoder ids of each sample, on ``device``.

        ``uniforms`` are ``(n, max_tokens + 1)`` draws in [0, 1); None without sampling.
        """
        samples, beams = len(prefixes), config.beams
        self.config, self.ids, self.step = config, ids, 0
        self.samples, self.starts = np.arange(samples), np.array([len(prefix) for prefix in prefixes])
        first = np.full((samples, self.starts.max() + config.max_tokens), ids.pad, np.int64)
        for row, prefix in zip(first, prefixes, strict=True):
            row[: len(prefix)] = prefix
        self.history = torch.from_numpy(first).to(device)[:, None].repeat(1, beams, 1)
        self.positions = torch.from_numpy(self.starts - 1).to(device)
        self.live = torch.full((samples, beams), _NEVER, dtype=torch.float64, device=device)
        self.live[:, 0] = 0.0  # all texts begin equal, so only the first is continued
        self.kept = torch.full_like(self.live, _NEVER)
        self.best = self.history[:, 0].clone()
        self.best_length = torch.zeros_like(self.positions)
        self.done = torch.zeros(samples, dtype=torch.bool, device=device)
        self.uniforms = None if uniforms is None else torch.from_numpy(uniforms).to(device)

    def __len__(self) -> int:
        return len(self.positions)

    @property
    def tokens(self) -> Tensor:
        """``(n * K,)`` int64, the last token of every text."""
        at = self.positions[:, None, None].expand(-1, self.config.beams, 1)
        return self.history.gather(2, at).flatten()

    @property
    def row_positions(self) -> Tensor:
        """``(n * K,)`` int64, the position of every text's last token."""
        return self.positions.repeat_interleave(self.config.beams)

    def finished(self) -> np.ndarray:
        """``(n,)`` bool on the host: samples whose result is final."""
        return self.done.cpu().numpy() | (self.step > self.config.max_tokens)

    def results(self, done: np.ndarray) -> Iterator[tuple[int, np.ndarray, float]]:
        """Yield number, best text and its score of each sample that is ``done``, ``(n,)`` bool."""
        best, lengths, scores = (x.cpu().numpy() for x in (self.best, self.best_length, self.kept[:, 0]))
        for row in np.flatnonzero(done):
            start = self.starts[row]
            yield self.samples[row], best[row, start : start + lengths[row]].astype(np.int32), scores[row]

    def shared_columns(self) -> int:
        """Number of first columns in which the texts of every sample agree; it never decreases."""
        same = (self.history == self.history[:, :1]).all(1)  # (n, P)
        same &= torch.arange(same.shape[1], device=same.device) <= self.positions[:, None]
        return int(same.long().cumprod(1).sum(1).min())

    def advance(self, logits: Tensor) -> Tensor:
        """Append the best or the drawn tokens, given the ``logits`` of every text's next token, ``(n * K, V)``.

        Returns ``(n * K,)`` int64, the text that each new text continues.
        """
        samples, beams = self.live.shape
        log_probs = constrain(
            round_to_grid(logits), self.history.flatten(0, 1), self.row_positions, self.step, self.config, self.ids
        )
        totals, parents, tokens = self._candidates(log_probs)
        ended = (tokens == self.ids.end) & totals.isfinite()
        self._end(totals, parents, ended)
        places = ended.to(torch.uint8).argsort(dim=1, stable=True)[:, :beams]  # the best texts that have not ended
        self.live = totals.gather(1, places).masked_fill(ended.gather(1, places), _NEVER)
        parents, tokens = parents.gather(1, places), tokens.gather(1, places)
        self.step += 1
        self._finish(ended)
        every = torch.arange(samples, device=parents.device)[:, None]
        self.history = self.history[every, parents]
        if self.step <= self.config.max_tokens:
            self.positions = self.positions + 1
            self.history.scatter_(2, self.positions[:, None, None].expand(-1, beams, 1), tokens[..., None])
        return (every * beams + parents).flatten()

    def _candidates(self, log_probs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Log-probabilities, beams and ids, each ``(n, 2 K)``, in descending order; or the drawn ones, ``(n, 1)``."""
        if self.uniforms is None:
            count = min(2 * self.config.beams, self.config.beams * log_probs.shape[1])
            return best_candidates(log_probs, self.live, count)
        drawn = draw(log_probs, self.uniforms[:, self.step], self.config)[:, None]
        return self.live + log_probs.gather(1, drawn), torch.zeros_like(drawn), drawn

    def _end(self, totals: Tensor, parents: Tensor, ended: Tensor) -> None:
        """Keep texts that end at this step if they are among the best ended ones of their sample."""
        may = ended & ~self.done[:, None]
        if self.config.score == "power":
            may[:, self.config.beams :] = False
        scores = (totals / self.config.penalty(self.step + 1)).masked_fill(~may, _NEVER)
        best, place = scores.max(1)
        better = best > self.kept[:, 0]
        parent = parents.gather(1, place[:, None])[:, 0]
        theirs = self.history[torch.arange(len(self), device=parent.device), parent]
        self.best = torch.where(better[:, None], theirs, self.best)
        self.best_length = self.best_length.masked_fill(better, self.step)
        self.kept = torch.cat([self.kept, scores], 1).topk(self.config.beams, dim=1).values

    def _finish(self, ended: Tensor) -> None:
        """Mark the samples whose result is final."""
        full = self.kept[:, -1].isfinite()
        if self.uniforms is not None:
            full = ended[:, 0]
        elif self.config.finish != "first":
            full = full & (self.live[:, 0] / self.config.best_penalty(self.step) <= self.kept[:, -1])
        self.done = self.done | full | (self.live[:, 0] == _NEVER)

    def keep(self, samples: np.ndarray) -> None:
        """Keep only the samples at the given ascending indices."""
        self.samples, self.starts = self.samples[samples], self.starts[samples]
        at = torch.from_numpy(samples).to(self.positions.device)
        for name in ("history", "positions", "live", "kept", "best", "best_length", "done"):
            setattr(self, name, getattr(self, name)[at])
        if self.uniforms is not None:
            self.uniforms = self.uniforms[at]
