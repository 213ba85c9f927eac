"""Generation of texts for pairs, in batches that share encoder rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, repeat

import numpy as np
import torch

from corpora.errors import FarspanError
from corpora.schemas.pairs import PairBatch, PairSet
from corpora.storage.ragged import Ragged
from corpora.tokenizers.protocol import Tokenizer
from objectives.api.examples import Examples
from objectives.api.special_tokens import DOCUMENT_SEPARATOR, END, PAD, SpecialTokens
from objectives.tasks.protocol import NO_TARGET, Task, divide_answers, group_questions
from trainer.generation.config import DecoderIds, GenerationConfig, Sources
from trainer.generation.generate import generate
from trainer.model.seq2seq import Seq2Seq


@dataclass(frozen=True)
class GenerationBatch:
    """Pairs whose texts are generated together."""

    pairs: np.ndarray  # (n,) int64, rows of the pairs in the examples
    sources: np.ndarray  # (B,) int64, for each encoder row, an example with its source
    rows: np.ndarray  # (n,) int64, encoder row of each pair

    def inputs(self, examples: Examples, special: SpecialTokens, multiple: int = 1) -> Sources:
        """Make the input of ``generate``."""
        lengths = examples.source_lengths[self.sources]
        width = int(lengths.max())
        mask = np.arange(width) < lengths[:, None]
        ids = np.where(mask, examples.source_ids[self.sources, :width], special[PAD])
        marks = examples.global_positions
        prompts = examples.prompt_lengths
        return Sources(
            source_ids=torch.from_numpy(ids),
            source_padding_mask=None if mask.all() else torch.from_numpy(mask),
            global_positions=None if marks is None else torch.from_numpy(marks[self.sources, :width]),
            rows=self.rows,
            prompts=None
            if prompts is None
            else Ragged.from_rows([examples.target_ids[pair, : prompts[pair]] for pair in self.pairs], np.int64),
            seeds=examples.sequence_ids[self.pairs, :8].copy().view(np.uint64)[:, 0],
            multiple=multiple,
        )


def make_batches(
    source_lengths: np.ndarray, shared: np.ndarray, decoder_positions: np.ndarray, most_positions: int
) -> Iterator[GenerationBatch]:
    """Divide n pairs into batches, long sources first; each batch has at least one pair.

    A batch's memory grows with the positions of its encoder rows, padded to the longest, and with the decoder positions
    that its texts may take, one for each beam; the sum is at most ``most_positions``, unless one pair takes more. All
    arrays are ``(n,)``; pairs with equal numbers in ``shared`` have the same source, which is encoded once per batch.
    """
    first = np.unique(shared, return_index=True)[1]  # the first pair of each source
    order = first[np.lexsort((first, -source_lengths[first].astype(np.int64)))]
    pairs: list[int] = []
    rows: list[int] = []
    sources: list[int] = []
    taken = 0  # positions of the decoder
    for source in order.tolist():
        for pair in np.flatnonzero(shared == shared[source]).tolist():
            width = int(source_lengths[sources[0] if sources else source])
            new = not sources or sources[-1] != source
            positions = (len(sources) + new) * width + taken + int(decoder_positions[pair])
            if pairs and positions > most_positions:
                yield _batch(pairs, sources, rows)
                pairs, sources, rows, taken, new = [], [], [], 0, True
            if new:
                sources.append(source)
            pairs.append(pair)
            rows.append(len(sources) - 1)
            taken += int(decoder_positions[pair])
    if pairs:
        yield _batch(pairs, sources, rows)


def _batch(pairs: list[int], sources: list[int], rows: list[int]) -> GenerationBatch:
    return GenerationBatch(*(np.array(column, np.int64) for column in (pairs, sources, rows)))


@dataclass(frozen=True)
class Predictions:
    """Generated texts of n pairs."""

    texts: Sequence[str]  # without special tokens
    tokens: Sequence[np.ndarray]  # n arrays (t,) int32, without start, prompt and end
    scores: np.ndarray  # (n,) float32, score of each text in the search


@dataclass(frozen=True)
class Predictor:
    """A function from pairs to generated texts.

    ``batch_positions`` is the maximum number of encoder and decoder positions in a batch; on one CPU thread in float32,
    it does not affect the texts (docs/generation.md).
    """

    task: Task
    special: SpecialTokens  # that the task may insert
    vocab_size: int  # rows of the model's token table
    tokenizer: Tokenizer
    config: GenerationConfig
    decoder_start: str = END  # first special token of the decoder's input
    source_limit: int | None = None  # rows of the encoder's position table
    source_multiple: int = 1  # number whose multiples sources were padded to in training
    batch_positions: int = 1 << 16

    def __call__(
        self, model: Seq2Seq, batch: PairBatch, report: Callable[[int], None] = lambda done: None
    ) -> Predictions:
        """Generate a text for each pair of ``batch``; documents that pairs share are encoded once.

        A text for several questions is divided into their answers, which have its score in common.
        """
        questions = getattr(self.task, "questions", 1)
        offsets = group_questions(batch.pair_documents, questions)
        first = offsets[:-1]
        asked = replace(batch, example_offsets=offsets) if questions > 1 else batch
        examples = self.task.render(asked, np.full(len(batch), NO_TARGET, np.int64), self.special).examples
        self._check([batch.pair_ids[pair] for pair in first.tolist()], examples)
        tokens: list[np.ndarray] = [np.empty(0, np.int32)] * len(first)
        scores = np.zeros(len(first), np.float32)
        prompts = 0 if examples.prompt_lengths is None else examples.prompt_lengths.astype(np.int64)
        decoder = np.broadcast_to((2 + prompts + self.config.max_tokens) * self.config.beams, len(first))
        shared = _equal_rows(batch.pair_documents.take(first)) if self.task.shares_sources else np.arange(len(first))
        ids, done = DecoderIds(self.special[self.decoder_start], self.special[END], self.special[PAD]), 0
        for one in make_batches(examples.source_lengths, shared, decoder, self.batch_positions):
            sources = one.inputs(examples, self.special, self.source_multiple)
            generated = generate(model, sources, self.config, ids)
            for pair, row in zip(one.pairs.tolist(), generated.tokens, strict=True):
                tokens[pair] = row
            scores[one.pairs] = generated.scores
            done += int(np.diff(offsets)[one.pairs].sum())
            report(done)
        if questions > 1:
            counts, separator = np.diff(offsets), self.special[DOCUMENT_SEPARATOR]
            answers = map(divide_answers, tokens, counts.tolist(), repeat(separator))
            tokens, scores = list(chain.from_iterable(answers)), np.repeat(scores, counts)
        return Predictions([self.text(row) for row in tokens], tokens, scores)

    def group(self, pairs: PairSet, rows: np.ndarray) -> np.ndarray:
        """Return the first of the pairs at ``(n,)`` int64 ``rows`` of each example, ``(m + 1,)`` int64, and n."""
        return group_questions(pairs.document_rows.take(rows), getattr(self.task, "questions", 1))

    def text(self, tokens: np.ndarray) -> str:
        """Decode ``(t,)`` generated ids without special tokens, and without the space that targets start with."""
        text = self.tokenizer.decode(tokens[~self._left_out[np.minimum(tokens, len(self._left_out) - 1)]])
        return text.removeprefix(" ") if getattr(self.task, "target_space", False) else text

    @cached_property
    def _left_out(self) -> np.ndarray:
        """Ids without text, ``(V + 1,)`` bool: special tokens and, at V, all ids beyond the tokenizer's vocabulary."""
        left_out = np.zeros(self.tokenizer.vocab_size + 1, bool)
        left_out[[number for number in self.special.ids.values() if number < len(left_out)]] = True
        left_out[-1] = True
        return left_out

    def _check(self, names: Sequence[str], examples: Examples) -> None:
        longest = int(examples.source_lengths.argmax())
        if self.source_limit is not None and examples.source_lengths[longest] > self.source_limit:
            raise FarspanError(
                f"pair {names[longest]!r}: its source has {examples.source_lengths[longest]:,} positions, the "
                f"encoder {self.source_limit:,}; let the task cut it (source_length = {self.source_limit})"
            )
        for ids in (examples.source_ids, examples.target_ids):
            beyond = np.argwhere(ids >= self.vocab_size)
            if len(beyond):
                row, place = beyond[0]
                inserted = [name for name, number in self.special.ids.items() if number == ids[row, place]]
                raise FarspanError(
                    f"pair {names[row]!r}: task {self.task.name} inserts {', '.join(inserted)}, which the model "
                    "does not know; use the task that it was trained on"
                )


def _equal_rows(documents: Ragged) -> np.ndarray:
    """Number the rows, ``(n,)`` int64: equal for rows with the same documents in the same order."""
    numbers: dict[bytes, int] = {}
    return np.array([numbers.setdefault(documents[row].tobytes(), len(numbers)) for row in range(len(documents))])
