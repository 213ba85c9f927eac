"""``StreamLayout``, the options of rows for decoders."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from corpora.errors import FarspanError
from corpora.printing import format_count
from corpora.schemas.sequences import SequenceBatch
from objectives.api.examples import Examples
from objectives.api.special_tokens import BEGIN, END, PAD, SpecialTokens, owned_id
from objectives.rendering.stream import Streams, stream_examples, stream_text

ATTENTION = ("causal", "prefix")


@dataclass(frozen=True)
class StreamLayout:
    """Options of rows for decoders: examples of an objective, or text without masks.

    Attributes:
        attention: ``causal``, or ``prefix`` to let the positions of an example's source attend in both directions.
        block_mask: give batches a mask for each pair of positions, for PyTorch's attention (``sdpa``); False gives the
            ends of documents, for FlashAttention. Attention ``prefix`` needs a mask and always gives one.
        across_documents: let a text's documents attend to earlier ones in their row, and predict their first tokens. An
            example is never divided.
        begin: token before each document of a text; ``<bos>`` is left out if the tokenizer has none; None for no token.
        between: token between two documents of a text; None for no token.
        end: token after each document of a text that ends in the row; ``<eos>`` is left out if the tokenizer has none;
            None for no token.
        ends_between: keep the end token of an example's source and the begin token of its target.
        max_length: maximum number of positions of a row; None for any number.
        vocab_size: number of token embeddings of the model, which all ids must be below; None for any number.
    """

    attention: str = "causal"
    block_mask: bool = False
    across_documents: bool = False
    begin: str | None = BEGIN
    between: str | None = None
    end: str | None = END
    ends_between: bool = True
    max_length: int | None = None
    vocab_size: int | None = None

    def __post_init__(self) -> None:
        if self.attention not in ATTENTION:
            raise FarspanError(f"attention {self.attention!r} of a stream: choose {' or '.join(ATTENTION)}")

    @property
    def needs_mask(self) -> bool:
        """True if batches have a mask for each pair of positions."""
        return self.block_mask or self.attention == "prefix"

    def text_tokens(self, vocab_size: int, owned: Mapping[str, int]) -> SpecialTokens:
        """Return the ids of padding and of the tokens around documents, all of them the tokenizer's own.

        Args:
            vocab_size: vocabulary size of the tokenizer.
            owned: roles and special tokens that the tokenizer has, name -> id.

        Raises:
            FarspanError: the tokenizer lacks a token.
        """
        ids = {}
        for role in ("begin", "between", "end"):
            name = getattr(self, role)
            number = None if name is None else owned_id(owned, name)
            if number is not None:
                ids[name] = number
            elif name not in (None, BEGIN, END):
                raise FarspanError(
                    f"{role} {name!r} of a stream: the tokenizer has no such special token; choose one of "
                    f"{', '.join(owned)}"
                )
        # Padding is never predicted nor seen by text, so any id will do.
        ids.setdefault(PAD, owned.get(PAD, owned.get(END, 0)))
        return SpecialTokens(ids, vocab_size)

    def check(self, special: SpecialTokens, longest: int, described: str) -> None:
        """Check rows before they are read.

        Args:
            special: the special tokens of the rows.
            longest: number of positions that the longest row has at least.
            described: name of the rows, for messages.

        Raises:
            FarspanError: the model has no embedding for some ids, or a row is too long.
        """
        if self.vocab_size is not None and special.vocab_size > self.vocab_size:
            raise FarspanError(
                f"{described}: its rows have ids up to {special.vocab_size - 1:,}, the model has {self.vocab_size:,} "
                f"token embeddings; resize them to {special.vocab_size:,}"
            )
        if self.max_length is not None and longest > self.max_length + (not self.ends_between):
            raise FarspanError(
                f"{described}: its longest row has {longest:,} positions or more, max_length is {self.max_length:,}; "
                "raise it, or make shorter rows"
            )

    def stream_text(self, batch: SequenceBatch, special: SpecialTokens) -> Streams:
        """Lay out rows of text; ``special`` is the result of ``text_tokens``."""
        begin, between, end = (special.ids.get(name) if name else None for name in (self.begin, self.between, self.end))
        across = self.across_documents
        return self._within(stream_text(batch, begin=begin, between=between, end=end, across_documents=across))

    def stream_examples(self, examples: Examples, special: SpecialTokens) -> Streams:
        """Join source and target of examples that were rendered with ``special``."""
        return self._within(stream_examples(examples, special, ends_between=self.ends_between))

    def _within(self, streams: Streams) -> Streams:
        """Refuse rows that are too long."""
        lengths = streams.input_ids.lengths
        if self.max_length is not None and (longest := int(lengths.max(initial=0))) > self.max_length:
            row = streams.sequence_ids[int(np.argmax(lengths))].tobytes().hex()
            raise FarspanError(
                f"sequence {row}: its stream has {format_count(longest, 'position')}, "
                f"max_length is {self.max_length:,}; raise it, or make shorter rows"
            )
        return streams
