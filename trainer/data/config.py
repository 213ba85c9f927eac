"""The data section of a recipe, and sources of examples."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np

from corpora.errors import FarspanError
from corpora.storage.sharded_rows import ShardedRows
from objectives.api.examples import Examples
from objectives.api.special_tokens import SpecialTokens


class Source(Protocol):
    """Anything that renders examples.

    Attributes:
        fingerprint: hash of everything that determines the examples; compared when a run is resumed.
        special: special tokens and vocabulary size that the model needs.
        tokenizer_fingerprint, tokenizer_size: fingerprint of the tokenizer of the examples, and its largest id plus 1.

    A source may have ``origin(index) -> str``, the location of a sequence for messages.
    """

    fingerprint: str
    special: SpecialTokens
    tokenizer_fingerprint: str
    tokenizer_size: int

    def __len__(self) -> int: ...

    def examples(self, indices: np.ndarray, epochs: np.ndarray | None = None) -> Examples:
        """Render the sequences at ``(n,)`` int64 ``indices``, in that order.

        Args:
            epochs: ``(n,)`` int64, number of times the run has seen each sequence before; None for 0.
        """

    def with_special(self, special: SpecialTokens) -> Source:
        """The same examples with the ids of another table, which must have all tokens that they use."""


@runtime_checkable
class ShardedSource(Source, Protocol):
    """A source that is read from shards, which may be fetched from a remote store while it is read.

    Attributes:
        shard_rows: number of sequences of each shard, in order; shards without any may be left out.
        cached: the artefacts whose shards are fetched; none if all are on local disk.
    """

    @property
    def shard_rows(self) -> tuple[int, ...]: ...

    @property
    def cached(self) -> list[ShardedRows]: ...

    def shards(self, indices: np.ndarray, epochs: np.ndarray) -> Iterator[tuple[ShardedRows, int]]:
        """The artefacts and numbers of the remote shards that ``examples`` reads, each once; arguments as there."""

    def most_bytes(self, shards: int | None) -> int:
        """The most bytes of remote shards that the sequences of so many shards are read from; None for all shards."""


@dataclass(frozen=True, kw_only=True)
class ObjectiveConfig:
    """An objective that draws masks during training.

    Attributes:
        name: name of the objective.
        preset: one of its presets.
        options: options that override the preset's.
        scorer: masked language model that scores spans, as for ``farspan mask --scorer``.
        seed: seed of the draws; with the seed of ``farspan mask --seed`` (0 for both) the first epoch has the masks
            that the command stores.
        redraw: draw new masks in every epoch; if false, every epoch has those of the first. Evaluation always uses the
            masks of the first.
    """

    name: str
    preset: str | None = None
    options: dict[str, Any] = field(default_factory=dict)
    scorer: str | None = None
    seed: int = 0
    redraw: bool = True


@dataclass(frozen=True, kw_only=True)
class TaskConfig:
    """A task, which renders pairs as source and target.

    Attributes:
        name: name of the task.
        preset: one of its presets.
        options: options that override the preset's.
        seed: seed of the target that a task draws in each epoch, for tasks with ``targets = "sampled"``.
    """

    name: str = "text_to_text"
    preset: str | None = None
    options: dict[str, Any] = field(default_factory=dict)
    seed: int = 0


@dataclass(frozen=True, kw_only=True)
class _SourceKeys:
    """The keys that name a source, in the data section as in each source of its mixture.

    Attributes:
        corpus: folder of a corpus.
        row_positions: least and most positions of the rows to train on, tokens and the room that the corpus reserves
            for others; None for all rows. So the stages of a curriculum take rows of their own lengths from one corpus.
        masks: folder of a mask set of the corpus; None if ``objective`` draws the masks.
        masks_options: options that override those of the mask set, if stored masks can be adjusted by them.
        objective: objective that draws masks during training; None if ``masks`` has them.
        pairs: folder of pairs to fine-tune on, instead of a corpus.
        documents: folder of their documents; None for the folder that the pairs record.
        split: split of the pairs to train on.
        task: task that renders the pairs.
        examples: number of pairs to train on, drawn from those of the split that have targets; None for all of them.
            With the same seed, a smaller draw is a part of a larger one.
        examples_seed: seed of this draw.
    """

    corpus: str = ""
    row_positions: tuple[int, int] | None = None
    masks: str | None = None
    masks_options: dict[str, Any] = field(default_factory=dict)
    objective: ObjectiveConfig | None = None
    pairs: str = ""
    documents: str | None = None
    split: str = "train"
    task: TaskConfig | None = None
    examples: int | None = None
    examples_seed: int = 0

    @property
    def names_rows(self) -> bool:
        """True if a key about rows of a corpus is set."""
        return bool(self.corpus or self.row_positions or self.masks or self.objective or self.masks_options)


@dataclass(frozen=True, kw_only=True)
class SourceConfig(_SourceKeys):
    """One corpus with one objective, or pairs with one task, as a part of a mixture.

    Attributes:
        name: name in metrics, unique within the mixture.
        weight: proportion of the samples, relative to the weights of the other sources.
    """

    name: str
    weight: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.weight < math.inf:
            raise FarspanError(f"source {self.name!r}: weight is {self.weight}; it must be above 0")
        if self.examples is not None and self.examples < 1:
            raise FarspanError(f"source {self.name!r}: examples is {self.examples}; it must be at least 1")
        if self.pairs and self.names_rows:
            raise FarspanError(
                f"source {self.name!r}: pairs conflicts with corpus, masks, objective, masks_options or row_positions; "
                "pretraining takes a corpus, fine-tuning takes pairs and a task"
            )

    @property
    def folder(self) -> str:
        """Folder of the corpus or the pairs; empty if none is named."""
        return self.pairs or self.corpus


SOURCE_KEYS = tuple(field.name for field in fields(_SourceKeys))


def require_names(mixture: Sequence[SourceConfig], section: str) -> None:
    """Check that the sources of ``section``.mixture have unique names."""
    names = [source.name for source in mixture]
    if len(set(names)) < len(names) or "" in names:
        raise FarspanError(
            f"{section}.mixture: the names of the sources are {', '.join(map(repr, names))}; give each its own"
        )


@dataclass(frozen=True, kw_only=True)
class DataConfig(_SourceKeys):
    """The training data and the width of batches.

    Attributes:
        mixture: several sources with weights, instead of the keys of one source.
        source_length, target_length: maximum width of a batch; a longer example is an error and never truncated.
        source_multiple, target_multiple: widths are rounded up to a multiple of these. With the length itself, all
            batches have the same width; with the attention block size, no block is partly padding.
        decoder_start: special token at the start of the decoder's input.
        global_positions: action if the encoder's attention can use global positions, but the objective makes none:
            ``expected`` warns, ``required`` (as in the published recipes) is an error, ``none`` accepts it.
        shuffle_shards: number of shards whose sequences are shuffled together, so that a run reads a few shards at a
            time; 0 shuffles all sequences of a corpus. Part of the order of samples.
        packing: put several pairs into one row of ``source_length`` and ``target_length``, a sample then being a row of
            pairs; attention stays within a pair, and positions begin at 0 in each. Sources begin at multiples of
            ``source_multiple``. Evaluation and generation are never packed.
        across_documents: let encoder positions attend to other documents of their row; if false, each document is
            encoded independently.
    """

    mixture: tuple[SourceConfig, ...] = ()
    source_length: int
    target_length: int = 1024
    source_multiple: int = 1
    target_multiple: int = 1
    decoder_start: str = "<eos>"
    shuffle_shards: int = 0
    packing: bool = False
    across_documents: bool = True
    global_positions: Literal["expected", "required", "none"] = "expected"

    def __post_init__(self) -> None:
        for side in ("source", "target"):
            length, multiple = getattr(self, f"{side}_length"), getattr(self, f"{side}_multiple")
            if multiple < 1 or length < 1 or length % multiple:
                raise FarspanError(
                    f"data.{side}_length is {length} with data.{side}_multiple {multiple}; "
                    "the length must be a multiple of it, and both at least 1"
                )
        if self.mixture and (self.names_rows or self.pairs):
            raise FarspanError(
                "data.mixture conflicts with data.corpus, masks, objective, masks_options, row_positions or pairs; "
                "name the sources in one of the two ways"
            )
        if self.shuffle_shards < 0:
            raise FarspanError(f"data.shuffle_shards is {self.shuffle_shards}; it must be at least 0")
        require_names(self.mixture, "data")
        if self.examples is not None and (self.mixture or self.examples < 1):
            cure = "set it in each of its sources" if self.mixture else "it must be at least 1"
            beside = " with data.mixture" if self.mixture else ""
            raise FarspanError(f"data.examples is {self.examples}{beside}; {cure}")
        if self.pairs and self.names_rows:
            raise FarspanError(
                "data.pairs conflicts with data.corpus, masks, objective, masks_options or row_positions; "
                "pretraining takes a corpus, fine-tuning takes pairs and a task"
            )

    @property
    def sources(self) -> tuple[SourceConfig, ...]:
        """The sources of the mixture, or the single one, named ``data``."""
        if self.mixture:
            return self.mixture
        return (SourceConfig(name="data", **{name: getattr(self, name) for name in SOURCE_KEYS}),)


@contextmanager
def naming_source(data: DataConfig, name: str, section: str) -> Iterator[None]:
    """Prefix errors inside the context with the recipe's section, or the source of its mixture."""
    try:
        yield
    except FarspanError as error:
        place = f"source {name!r} of {section}.mixture" if data.mixture else section
        raise FarspanError(f"{place}: {error}") from error
