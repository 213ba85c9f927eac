"""``Objective``, the protocol of masking strategies, and the tools that one may need.

An objective is registered under the entry-point group ``farspan.objectives``. The entry point loads a class (or any
callable) that takes the options as keyword arguments and may have ``presets``: name -> options. The caller creates and
passes tools (a tokenizer, a scorer, an entity recognizer), so that objectives load no model library themselves::

    objective = load_objective("model_based", "bart_ls").with_tools(Tools(tokenizer, scorer=scorer))
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar, cast, runtime_checkable

import numpy as np

from corpora.keyed import make_key
from corpora.schemas.sequences import SequenceBatch
from corpora.storage.manifest import Manifest
from corpora.tokenizers.protocol import Tokenizer
from objectives.api.examples import Examples
from objectives.api.masks import MaskBatch
from objectives.api.plugins import OBJECTIVE_GROUP, Plugins
from objectives.api.special_tokens import SpecialTokens

OBJECTIVES = Plugins(
    group=OBJECTIVE_GROUP,
    noun="objective",
    members={
        "name": str,
        "options": Mapping,
        "global_attention": str,
        "validate": Callable,
        "mask": Callable,
        "render": Callable,
    },
    guide="docs/objectives.md, Your own",
)

Equipped = TypeVar("Equipped")


@dataclass(frozen=True)
class CorpusFacts:
    """Properties of a corpus that its manifest records, known before any work starts.

    Attributes:
        vocab_size: vocabulary size of the tokenizer.
        owned_tokens: ids of the roles (``<pad>``, ``<bos>``, ``<eos>``, ``<unk>``, ``<mask>``) that the tokenizer has,
            and of its other special tokens by their text.
        sequence_length: encoder positions that the corpus was built for: no row is longer when rendered with
            separators, begin and end but without any mask.
        max_tokens: maximum number of text tokens in a row.
        max_documents: maximum number of parts in a row.
        room_per_sequence, room_per_document: positions reserved in every row for begin and end, and for each part.
    """

    vocab_size: int
    owned_tokens: Mapping[str, int]
    sequence_length: int
    max_tokens: int
    max_documents: int
    room_per_sequence: int = 2
    room_per_document: int = 1

    @classmethod
    def of(cls, manifest: Manifest) -> CorpusFacts:
        """Read the facts from a corpus's manifest."""
        return cls(
            vocab_size=manifest.tokenizer["vocab_size"],
            owned_tokens=manifest.tokenizer["owned_tokens"],
            sequence_length=manifest.config["sequence_length"],
            max_tokens=manifest.totals["max_tokens"],
            max_documents=manifest.totals["max_documents"],
            room_per_sequence=manifest.config["room_per_sequence"],
            room_per_document=manifest.config["room_per_document"],
        )


@runtime_checkable
class Objective(Protocol):
    """Chooses the tokens to hide and renders source and target.

    Optional members, used if they exist:

    - ``with_tools(tools: Tools) -> Objective``: returns a copy that can read text or use a model; called before
      ``validate`` and ``mask``; raises ``FarspanError`` for a tool that is missing or does not fit.
    - ``tools: Mapping[str, str]``: name and version of each tool that affects its masks; recorded with its options.
    - ``reconstruct(examples, masks, special) -> Ragged``: recovers the text tokens from the output of ``render``.
    - ``render(batch, masks, special, segment_ids=True)``: also returns the document of each source position, which a
      recipe with ``data.across_documents = false`` requires.
    - ``draws(ids, tokens, parts, key) -> SpanDraws``: the numbers that ``mask`` draws rows by, from their ids and
      lengths alone. A mixture of such objectives draws all its rows in one call.
    - ``longest(batch) -> (sources, targets)``: upper bounds on rendered lengths, ``(n,)`` int64 each, over all draws.
      It may use the numbers of tokens, documents and sentences, but not the tokens. With it, a run that draws masks
      can check all lengths at startup.
    - ``adjustable: tuple[str, ...]`` and ``select(batch, masks) -> MaskBatch``: options that may differ from those of
      stored masks, and the selection among stored candidates by the objective's own options.

    Attributes:
        name: name of the entry point.
        options: every option as JSON values; with the seed and a sequence id they determine a mask.
        global_attention: rule of the encoder's global positions: ``none``, ``bos``, ``separators``, ``masked``,
            ``masked_and_prefix``, or ``positions`` (given in the mask rows).
    """

    @property
    def name(self) -> str: ...

    @property
    def options(self) -> Mapping[str, Any]: ...

    @property
    def global_attention(self) -> str: ...

    def validate(self, facts: CorpusFacts) -> SpecialTokens:
        """Check options against tokenizer and lengths before any work starts; return the special tokens for rendering.

        Raises:
            FarspanError: the options do not fit this corpus; names the cure.
        """

    def mask(self, batch: SequenceBatch, key: bytes) -> MaskBatch:
        """Choose the tokens to hide: for each row, a pure function of (key, options, sequence id, row).

        Args:
            batch: n corpus rows.
            key: result of ``mask_key``.
        """

    def render(self, batch: SequenceBatch, masks: MaskBatch, special: SpecialTokens) -> Examples:
        """Render the inputs of encoder and decoder."""


def equip(objective: Equipped, tools: Tools) -> Equipped:
    """Pass ``tools`` to an objective or a task, if it takes any; raise an error for a missing or unfit tool."""
    with_tools = getattr(objective, "with_tools", None)
    return with_tools(tools) if with_tools else objective


def mask_key(seed: int, objective: Objective) -> bytes:
    """Return the key of an objective's random draws, for stored masks and for masks drawn during training.

    Adjustable options do not affect the key, so adjusting stored masks gives the same as masking again.
    """
    adjustable = getattr(objective, "adjustable", ())
    options = {name: value for name, value in objective.options.items() if name not in adjustable}
    return make_key(seed, "mask", {"objective": objective.name, **options})


def draw_key(key: bytes, draw: int) -> bytes:
    """Return the key of draw number ``draw``, from 0, of masks with key ``key``; draw 0 has ``key`` itself."""
    return hashlib.blake2b(f"draw {draw}".encode(), digest_size=16, key=key).digest() if draw else key


def mask_draws(
    mask: Callable[[SequenceBatch, bytes], MaskBatch], batch: SequenceBatch, key: bytes, draws: np.ndarray
) -> MaskBatch:
    """Mask n rows by an objective's ``mask``, each with the key of its own draw number, ``draws`` ``(n,)`` int64."""
    numbers = np.unique(draws).tolist()
    if len(numbers) <= 1:
        return mask(batch, draw_key(key, numbers[0] if numbers else 0))
    places = [np.flatnonzero(draws == number) for number in numbers]
    parts = [mask(batch.take(rows), draw_key(key, draw)) for rows, draw in zip(places, numbers, strict=True)]
    return MaskBatch.concatenate(parts).take(np.argsort(np.concatenate(places)))


def load_objective(name: str, preset: str | None = None, options: Mapping[str, Any] | None = None) -> Objective:
    """Build the objective ``name`` from a preset, overridden by ``options``.

    Raises:
        FarspanError: the objective, preset or option is unknown (suggests the nearest name); the objective cannot be
            built, or lacks a required member.
    """
    return cast(Objective, OBJECTIVES.load(name, preset, options))


class Scorer(Protocol):
    """An encoder-only masked language model.

    Attributes:
        fingerprint: hash of weights and configuration; recorded with the masks that it affects.
        tokenizer_fingerprint: fingerprint of its tokenizer.
        special: its special tokens, at least ``<pad>`` and ``<mask>``.
    """

    @property
    def fingerprint(self) -> str: ...

    @property
    def tokenizer_fingerprint(self) -> str: ...

    @property
    def special(self) -> SpecialTokens: ...

    def losses(self, ids: np.ndarray, lengths: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """Compute the cross-entropy of each label, in nats.

        Args:
            ids: ``(B, S)`` int32, text ids and those of ``special``.
            lengths: ``(B,)`` int32, positions of each row without padding.
            labels: ``(B, S)`` int32, the token to predict, or ``IGNORED``.

        Returns:
            ``(B, S)`` float32, 0 for positions without a label. Up to rounding, a row's losses do not depend on the
            other rows.
        """


class EntityRecognizer(Protocol):
    """Finds named entities.

    Attributes:
        name: model and version; recorded with the masks that it affects.
    """

    @property
    def name(self) -> str: ...

    def find(self, texts: Sequence[str]) -> list[np.ndarray]:
        """Find the entities of each text: first character and end, ``(k, 2)`` int64, ascending and disjoint."""


@dataclass(frozen=True)
class Tools:
    """Tools that a caller passes to an objective.

    Attributes:
        tokenizer: the tokenizer of the corpus.
        scorer: the scorer, for objectives that score spans with a model.
        recognizer: the recognizer, for objectives that need named entities; if None, they load the model named in their
            options.
    """

    tokenizer: Tokenizer
    scorer: Scorer | None = None
    recognizer: EntityRecognizer | None = None
