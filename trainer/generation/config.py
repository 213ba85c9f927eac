"""The options, the input and the output of generation."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from corpora.errors import FarspanError
from corpora.storage.ragged import Ragged

if TYPE_CHECKING:
    from torch import Tensor  # slow to import


_MOST_LOG = 700.0  # about the logarithm of the largest float64


@dataclass(frozen=True, kw_only=True)
class GenerationConfig:
    """Options of beam search, greedy decoding (one beam) and sampling.

    A text of n tokens, its end included, has the score ``sum(log p) / penalty(n)``. Prompts count neither in n nor in
    the sum; forced tokens count with their own log-probability.

    Attributes:
        beams: number of texts kept at every step; 1 is greedy decoding.
        score: ``power`` divides by n^length_penalty, and a text may end only as one of the best ``beams`` of 2 * beams
            candidates (fairseq, transformers); ``gnmt`` divides by ((5 + n) / 6)^length_penalty, and every candidate
            may end (T5X, PEGASUS).
        length_penalty: exponent of the penalty; larger values favour longer texts.
        finish: condition that ends a sample. ``first``: when ``beams`` texts have ended (fairseq; transformers'
            early_stopping = True). ``exact``: when no longer text can beat the worst of the best ``beams`` ended ones
            (T5X; transformers' "never"). ``estimate``: the same, with the present score of the best unfinished text as
            an estimate of its final one (transformers' False).
        min_tokens: minimum number of tokens before the end.
        max_tokens: maximum number of tokens before the end, after which the end is forced.
        no_repeat_ngram: length of n-grams that no text, with its start and prompt, contains twice; 0 allows all.
        first_tokens: ids that every text begins with, after its prompt.
        sample: draw each token instead of taking the best; needs one beam.
        temperature: divisor of the logits before a draw.
        top_k: number of most probable tokens to draw from; 0 for all.
        top_p: draw from the smallest set of most probable tokens whose probabilities add up to this.
        seed: seed of the draws, combined with each sample's own seed.
    """

    beams: int = 4
    score: Literal["power", "gnmt"] = "power"
    length_penalty: float = 1.0
    finish: Literal["first", "exact", "estimate"] = "first"
    min_tokens: int = 0
    max_tokens: int = 256
    no_repeat_ngram: int = 0
    first_tokens: tuple[int, ...] = ()
    sample: bool = False
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        for name, least in (("beams", 1), ("min_tokens", 0), ("max_tokens", 1), ("no_repeat_ngram", 0), ("top_k", 0)):
            if getattr(self, name) < least:
                raise FarspanError(f"generation.{name} is {getattr(self, name)}; it must be at least {least}")
        if self.min_tokens > self.max_tokens:
            raise FarspanError(
                f"generation.min_tokens is {self.min_tokens}, above generation.max_tokens {self.max_tokens}; lower it"
            )
        if len(self.first_tokens) > self.max_tokens:
            raise FarspanError(
                f"generation.first_tokens are {len(self.first_tokens)}, above generation.max_tokens {self.max_tokens}; "
                "force fewer"
            )
        if not abs(self.length_penalty) * math.log(self.max_tokens + 6) < _MOST_LOG:
            raise FarspanError(
                f"generation.length_penalty is {self.length_penalty}, with which the penalty of a text of "
                f"{self.max_tokens} tokens is no float; give a number closer to 0"
            )
        self._check_sampling()

    def _check_sampling(self) -> None:
        if not 0 < self.temperature < math.inf:
            raise FarspanError(f"generation.temperature is {self.temperature}; it must be above 0 and finite")
        if not 0 < self.top_p <= 1:
            raise FarspanError(f"generation.top_p is {self.top_p}; it must be above 0 and at most 1")
        if self.sample and self.beams > 1:
            raise FarspanError(
                f"generation.sample is set with generation.beams {self.beams}; set beams to 1, or do not sample"
            )
        if not self.sample and (self.temperature, self.top_k, self.top_p) != (1.0, 0, 1.0):
            raise FarspanError(
                "generation.temperature, top_k or top_p is set, but generation.sample is not; set it, or leave them out"
            )

    def penalty(self, tokens: int) -> float:
        """Divisor of the log-probability of a text of ``tokens`` >= 1 tokens, its end included."""
        return (tokens if self.score == "power" else (5 + tokens) / 6) ** self.length_penalty

    def best_penalty(self, tokens: int) -> float:
        """Divisor for the bound on the final score of an unfinished text of ``tokens`` tokens."""
        longest = self.finish == "exact" and self.length_penalty > 0
        return self.penalty(self.max_tokens + 1 if longest else tokens)


class DecoderIds(NamedTuple):
    """Special ids of generation."""

    start: int  # first id of the decoder's input
    end: int  # ends a text
    pad: int  # is never generated


@dataclass(frozen=True, kw_only=True)
class Sources:
    """``B`` encoder rows, and ``n`` samples that each generate one text from one of them.

    Attributes:
        source_ids: ``(B, S)`` int32 or int64.
        source_padding_mask: ``(B, S)`` bool, False at padding, which is on the right; None without padding.
        segment_ids: ``(B, S)`` int, the document of each position, -1 at padding; None if the encoder attends across
            documents.
        global_positions: ``(B, S)`` bool, positions with global attention; None if there are none.
        rows: ``(n,)`` int64, the encoder row of each sample; None if sample i has row i. A row is encoded once, and its
            samples share its keys and values.
        prompts: the first ids of each sample's decoder input, after the start id; None without prompts.
        seeds: ``(n,)`` uint64, seed of each sample's draws; needed for sampling. It should not depend on the sample's
            place in the batch.
        multiple: number whose multiples rows were padded to in training (``data.source_multiple``).
    """

    source_ids: Tensor
    source_padding_mask: Tensor | None = None
    segment_ids: Tensor | None = None
    global_positions: Tensor | None = None
    rows: np.ndarray | None = None
    prompts: Ragged | None = None
    seeds: np.ndarray | None = None
    multiple: int = 1

    def __post_init__(self) -> None:
        shape = self.source_ids.shape
        for name in ("source_padding_mask", "segment_ids", "global_positions"):
            value = getattr(self, name)
            if value is not None and value.shape != shape:
                raise FarspanError(f"sources: {name} is {tuple(value.shape)}, source_ids {tuple(shape)}; align them")
        for name in ("prompts", "seeds"):
            value = getattr(self, name)
            if value is not None and len(value) != len(self):
                raise FarspanError(f"sources: {len(value)} {name} for {len(self)} samples; give one for each")
        if self.rows is not None and len(beyond := np.flatnonzero((self.rows < 0) | (self.rows >= shape[0]))):
            (sample, *_) = beyond
            raise FarspanError(
                f"sources: sample {sample} has row {self.rows[sample]}, but there are {shape[0]} encoder rows; number "
                "them from 0"
            )

    def __len__(self) -> int:
        """Number of samples."""
        return len(self.source_ids) if self.rows is None else len(self.rows)

    @property
    def encoder_rows(self) -> np.ndarray:
        """``(n,)`` int64, the encoder row of each sample."""
        return np.arange(len(self)) if self.rows is None else self.rows


@dataclass(frozen=True)
class Generated:
    """Generated texts."""

    tokens: list[np.ndarray]  # ids of each text, n arrays (t,) int32, without start, prompt and end
    scores: np.ndarray  # (n,) float32, log-probability divided by the length penalty

    def __len__(self) -> int:
        return len(self.tokens)
