"""Masked language models as scorers of the objective ``model_based``: the losses of masked tokens.

A row longer than the model's positions is cut into windows, each framed by the begin and end tokens that the model was
trained with. A model of 512 positions reads a row of 16,384 tokens as 33 independent windows, similar to BART-LS's own
scorer, whose attention stays within blocks of 512 (arXiv:2209.10052, section 2.3).

A row's losses depend on the other rows of its batch only through padding, which changes the order of float additions,
so they agree to 1e-5 in float32. The same call on the same machine gives the same bits.
"""

from __future__ import annotations

from functools import cached_property, lru_cache, partial
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F

from corpora.errors import FarspanError
from objectives.api.examples import IGNORED
from objectives.api.special_tokens import BEGIN, END, PAD
from trainer.model.masked_lm import MaskedLM
from trainer.scorer.inference import BATCH_TOKENS, batch_by_length, choose_device, pin_threads
from trainer.scorer.models import FoundModel, PretrainedMaskedLM, find_model

PRECISIONS = ("auto", "float32", "bfloat16")
# Positions whose logits are in memory at once; on a CPU, larger chunks are not faster.
_CHUNK = {"cpu": 512, "cuda": 8192}


class _Windows(NamedTuple):
    """Row, start and size of windows of text with a masked token each; ``(n,)`` int64."""

    rows: np.ndarray
    starts: np.ndarray
    sizes: np.ndarray


class MaskedLMScorer:
    """A scorer, as in ``objectives.api.protocol.Scorer``, whose weights are loaded at its first use.

    ``fingerprint`` covers the precision, if not float32; ``room`` is the maximum number of text tokens in a window.
    """

    def __init__(self, found: FoundModel, device: str, precision: str, threads: int | None) -> None:
        self._found, self._device, self._precision, self._threads = found, device, precision, threads
        self.fingerprint = found.fingerprint if precision == "float32" else f"{found.fingerprint}-{precision}"
        self.tokenizer_fingerprint, self.special = found.tokenizer_fingerprint, found.special
        self._begin, self._end = found.special.ids.get(BEGIN), found.special.ids.get(END)
        self._ends = (self._begin is not None) + (self._end is not None)
        self.room = found.positions - self._ends
        if self.room < 1:
            raise FarspanError(
                f"scorer {found.path}: has {found.positions} positions, all taken by its begin and end tokens; give a "
                f"model with at least {self._ends + 1}"
            )

    def __reduce__(self) -> tuple[Any, ...]:
        options = {"device": self._device, "precision": self._precision, "threads": self._threads}
        return partial(load_scorer, self._found.path, **options), ()

    @cached_property
    def model(self) -> MaskedLM | PretrainedMaskedLM:
        """Model on its device."""
        model = self._found.load().eval().requires_grad_(False)
        return model.to(choose_device(self._device), getattr(torch, self._precision))

    def losses(self, ids: np.ndarray, lengths: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """Compute the losses as in ``objectives.api.protocol.Scorer``; each window has its own begin and end tokens."""
        losses = np.zeros(ids.shape, np.float32)
        windows = self._windows(ids, lengths, labels)
        with pin_threads(self._threads), torch.inference_mode():
            for chosen in batch_by_length(windows.sizes + self._ends, BATCH_TOKENS[self._device]):
                rows, starts, sizes = (column[chosen] for column in windows)
                places = np.arange(sizes.max())
                inside = places < sizes[:, None]  # (n, longest)
                at = rows[:, None], np.minimum(starts[:, None] + places, ids.shape[1] - 1)
                targets = np.where(inside, labels[at], IGNORED)
                window, place = np.nonzero(targets != IGNORED)
                losses[rows[window], starts[window] + place] = self._score(ids[at], sizes, targets)
        return losses

    def _windows(self, ids: np.ndarray, lengths: np.ndarray, labels: np.ndarray) -> _Windows:
        """Cut rows into windows of the model's input length; windows without masked tokens are left out."""
        width = ids.shape[1]
        edges = np.zeros((len(ids), 2), np.int64)  # positions of begin and end tokens
        if width:
            edges[:, 0] = (lengths > 0) & (ids[:, 0] == self._begin)
            edges[:, 1] = (lengths > edges[:, 0]) & (ids[np.arange(len(ids)), lengths - 1] == self._end)
        text = lengths - edges.sum(1)
        counts = -(-text // self.room)
        rows = np.repeat(np.arange(len(ids)), counts)
        number = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
        sizes = np.minimum(self.room, text[rows] - number * self.room)
        starts = edges[rows, 0] + number * self.room
        before = np.zeros((len(ids), width + 1), np.int32)  # masked tokens before each position
        np.cumsum(labels != IGNORED, axis=1, out=before[:, 1:])
        used = before[rows, starts + sizes] > before[rows, starts]
        return _Windows(rows[used], starts[used], sizes[used])

    def _score(self, text: np.ndarray, sizes: np.ndarray, targets: np.ndarray) -> np.ndarray:
        """Compute the losses of the masked tokens of n windows, in order, ``(masked,)`` float32.

        ``text`` has the ``sizes``, ``(n,)``, first ids of each window, ``targets`` the masked tokens, ``IGNORED``
        elsewhere; both are ``(n, longest)`` int32.
        """
        longest, first = text.shape[1], int(self._begin is not None)
        places = np.arange(longest + self._ends)
        shown = np.full((len(text), len(places)), self.special[PAD], np.int64)
        np.copyto(shown[:, first : first + longest], text, where=places[:longest] < sizes[:, None])
        if self._begin is not None:
            shown[:, 0] = self._begin
        if self._end is not None:
            shown[np.arange(len(text)), first + sizes] = self._end
        mask = places < sizes[:, None] + self._ends
        device = next(self.model.parameters()).device
        states = self.model.encode(
            torch.from_numpy(shown).to(device), None if mask.all() else torch.from_numpy(mask).to(device)
        )
        labels = torch.from_numpy(targets.astype(np.int64)).to(device)
        hidden = states[:, first : first + longest][labels != IGNORED]  # (masked, d)
        chunks = zip(
            hidden.split(_CHUNK[self._device]), labels[labels != IGNORED].split(_CHUNK[self._device]), strict=True
        )
        parts = [F.cross_entropy(self.model.logits(part).float(), label, reduction="none") for part, label in chunks]
        return torch.cat(parts).cpu().numpy()


@lru_cache(maxsize=1)
def load_scorer(
    path: str, *, device: str = "auto", precision: str = "auto", threads: int | None = None
) -> MaskedLMScorer:
    """Find and validate a scorer without loading its weights, once per process.

    ``path`` is a run of ``farspan train`` with an encoder-only model, one of its checkpoints, or the folder or hub name
    of a masked language model of Hugging Face. ``auto`` is CUDA if available, and bfloat16 there; ``threads`` None is
    torch's default on the processor.
    """
    for option, value, choices in (("device", device, ("auto", "cpu", "cuda")), ("precision", precision, PRECISIONS)):
        if value not in choices:
            raise FarspanError(f"scorer {path}: {option} is {value!r}; give {', '.join(choices[:-1])} or {choices[-1]}")
    if threads is not None and threads < 1:
        raise FarspanError(f"scorer {path}: threads is {threads}; give a positive number, or None")
    if device == "cuda" and not torch.cuda.is_available():
        raise FarspanError(f"scorer {path}: device is 'cuda', but PyTorch finds no CUDA device; give cpu or auto")
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    if precision == "auto":
        precision = "bfloat16" if device == "cuda" else "float32"
    return MaskedLMScorer(find_model(path), device, precision, threads)
