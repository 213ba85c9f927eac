"""The unfinished texts of all samples, and the best ended text of each."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from trainer.generation.candidates import best_candidates, constrain, draw, on_grid
from trainer.generation.config import GenerationConfig
from trainer.generation.sources import DecoderIds

_NEVER = float("-inf")


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
        longest = max(map(len, prefixes))
        first = np.full((samples, longest + config.max_tokens), ids.pad, np.int64)
        for row, prefix in zip(first, prefixes, strict=True):
            row[: len(prefix)] = prefix
        self.history = torch.from_numpy(first).to(device)[:, None].repeat(1, beams, 1)
        self.positions = torch.tensor([len(prefix) - 1 for prefix in prefixes], device=device)
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
            on_grid(logits), self.history.flatten(0, 1), self.row_positions, self.step, self.config, self.ids
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
        at = torch.from_numpy(samples).to(self.positions.device)
        for name in ("history", "positions", "live", "kept", "best", "best_length", "done"):
            setattr(self, name, getattr(self, name)[at])
        if self.uniforms is not None:
            self.uniforms = self.uniforms[at]
