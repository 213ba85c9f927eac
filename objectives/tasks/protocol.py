"""``Task``, the protocol of renderings of pairs, here and in other packages, and several questions as one example.

A task is registered under the entry-point group ``farspan.tasks``. The entry point loads a class (or any callable) that
takes the options as keyword arguments and may have ``presets``: name -> options.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Protocol, cast, runtime_checkable

import numpy as np

from corpora.keyed import id_keys, make_key
from corpora.schemas.pairs import PairBatch
from corpora.storage.manifest import Manifest
from corpora.storage.ragged import Ragged
from objectives.api.examples import Examples
from objectives.api.plugins import Plugins
from objectives.api.special_tokens import SpecialTokens

TASKS = Plugins(
    group="farspan.tasks",
    noun="task",
    members={
        "name": str,
        "options": Mapping,
        "global_attention": str,
        "samples": str,
        "shares_sources": bool,
        "validate": Callable,
        "render": Callable,
    },
    guide="docs/tasks.md, Your own",
)

SAMPLES = ("each", "first", "sampled")
NO_TARGET = -1  # in place of a target: a pair without targets, or a source to generate from


@dataclass(frozen=True)
class PairFacts:
    """Properties of pairs that their manifest records, known before any work starts.

    Attributes:
        vocab_size: vocabulary size of the tokenizer.
        owned_tokens: ids of the roles (``<pad>``, ``<bos>``, ``<eos>``, ``<unk>``, ``<mask>``) that the tokenizer has,
            and of its other special tokens by their text.
        max_query_tokens, max_target_tokens: tokens of the longest query and of the longest target.
    """

    vocab_size: int
    owned_tokens: Mapping[str, int]
    max_query_tokens: int = 0
    max_target_tokens: int = 0

    @classmethod
    def of(cls, manifest: Manifest) -> PairFacts:
        """Read the facts from the manifest of pairs."""
        return cls(
            vocab_size=manifest.tokenizer["vocab_size"],
            owned_tokens=manifest.tokenizer["owned_tokens"],
            max_query_tokens=manifest.totals["max_query_tokens"],
            max_target_tokens=manifest.totals["max_target_tokens"],
        )


@dataclass(frozen=True, slots=True)
class Cut:
    """Numbers of tokens that did not fit.

    Attributes:
        query, documents, target: ``(n,)`` int64 each, tokens cut from the query, the documents and the chosen target.
    """

    query: np.ndarray
    documents: np.ndarray
    target: np.ndarray

    @classmethod
    def concatenate(cls, parts: Iterable[Cut]) -> Cut:
        """Concatenate the rows of all ``parts``, at least one, in order."""
        parts = list(parts)
        return cls(*(np.concatenate([getattr(part, field.name) for part in parts]) for field in fields(cls)))


@dataclass(frozen=True, slots=True)
class Rendered:
    """``n`` rendered pairs and the tokens that were cut from them."""

    examples: Examples
    cut: Cut


@dataclass(frozen=True, slots=True)
class Lengths:
    """Rendered lengths of ``n`` pairs, ``(n,)`` int64 each.

    Attributes:
        source, target: positions of encoder and decoder, including special tokens.
        prompt: positions of the prompt at the start of the target.
        cut: tokens that do not fit.
    """

    source: np.ndarray
    target: np.ndarray
    prompt: np.ndarray
    cut: Cut


@runtime_checkable
class Task(Protocol):
    """Renders pairs as inputs of encoder and decoder.

    Optional members, used if they exist:

    - ``with_tools(tools: Tools) -> Task``: returns a copy that can encode text; called before ``validate`` and
      ``render``; raises ``FarspanError`` for a tool that is missing or does not fit.
    - ``lengths(queries, documents, targets) -> Lengths``: rendered lengths and cuts, from lengths alone, which a run
      reports at its start. ``queries`` are ``(n,)`` int64 tokens, ``documents`` n rows of int64 tokens, ``targets``
      ``(n,)`` int64 tokens, ``NO_TARGET`` for none.
    - ``target_space: bool``: True if targets start with a space, which generated texts then lose.
    - ``questions: int``: maximum number of pairs that are rendered as one example (``PairBatch.example_offsets``), with
      ``<doc-sep>`` between the answers in its target; 1 if absent.

    Attributes:
        name: name of the entry point.
        options: every option as JSON values; with the pair and its target they determine an example.
        global_attention: ``none`` if no source position has global attention, else the name of a rule.
        samples: training examples of a pair: one for ``each`` target, one with the ``first`` target, or one with a
            target ``sampled`` again in every epoch.
        shares_sources: True if a source depends only on the documents, so that all pairs about the same documents have
            the same source; generation then encodes it once.
    """

    @property
    def name(self) -> str: ...

    @property
    def options(self) -> Mapping[str, Any]: ...

    @property
    def global_attention(self) -> str: ...

    @property
    def samples(self) -> str: ...

    @property
    def shares_sources(self) -> bool: ...

    def validate(self, facts: PairFacts) -> SpecialTokens:
        """Check options against the pairs before any work starts; return the special tokens for rendering.

        Raises:
            FarspanError: the options do not fit these pairs; names the cure.
        """

    def render(self, batch: PairBatch, chosen: np.ndarray, special: SpecialTokens) -> Rendered:
        """Render the inputs of encoder and decoder: a pure function of pair, chosen target and options.

        Args:
            batch: n pairs; n examples, unless ``example_offsets`` joins some of them.
            chosen: ``(n,)`` int64, index of the target within its pair; ``NO_TARGET`` to render the prompt only.
            special: ids of special tokens, at least those that ``validate`` returned.
        """


def load_task(name: str, preset: str | None = None, options: Mapping[str, Any] | None = None) -> Task:
    """Build the task ``name`` from a preset, overridden by ``options``.

    Raises:
        FarspanError: the task, preset or option is unknown (suggests the nearest name); the task cannot be built, or
            lacks a required member.
    """
    return cast(Task, TASKS.load(name, preset, options))


def sample_targets(seed: int, pair_ids: Iterable[str], epochs: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Draw one of the ``counts`` targets of each pair uniformly, keyed by (seed, pair id, epoch).

    Returns ``(n,)`` int64, index of the target; ``NO_TARGET`` for a pair without targets.
    """
    names = (f"{epoch}:{name}" for epoch, name in zip(epochs.tolist(), pair_ids, strict=True))
    draws = id_keys(make_key(seed, "target"), names)[:, 0] >> np.uint64(1)
    return np.where(counts > 0, draws.astype(np.int64) % np.maximum(counts, 1), NO_TARGET)


def document_lengths(batch: PairBatch) -> Ragged:
    """Return the number of tokens of each document of each pair, n rows of int64."""
    return Ragged(batch.document_tokens.lengths[batch.pair_documents.values], batch.pair_documents.offsets)


def group_questions(documents: Ragged, most: int) -> np.ndarray:
    """Group n pairs that follow each other and have the same ``documents`` into examples of at most ``most`` questions.

    Returns ``(m + 1,)`` int64: pairs ``offsets[i]`` to ``offsets[i + 1] - 1`` are example i.
    """
    if most == 1:
        return np.arange(len(documents) + 1)
    starts: list[int] = []
    names = [documents[pair].tobytes() for pair in range(len(documents))]
    for pair, name in enumerate(names):
        if not pair or name != names[pair - 1] or pair - starts[-1] == most:
            starts.append(pair)
    return np.array([*starts, len(names)], np.int64)


def split_groups(rows: np.ndarray, offsets: np.ndarray, size: int) -> list[np.ndarray]:
    """Split ``(n,)`` rows of pairs into parts of about ``size``, without dividing an example of ``group_questions``."""
    edges = offsets[np.searchsorted(offsets, np.arange(size, len(rows), size))]
    return [part for part in np.split(rows, np.unique(edges)) if len(part)]


def join_questions(batch: PairBatch, chosen: np.ndarray, separator: int) -> tuple[PairBatch, np.ndarray]:
    """Join the queries, and the chosen targets, of each example to one, with the id ``separator`` between them.

    ``chosen``: ``(n,)`` int64, index of the target within its pair. An example has the id of its first pair, and no
    target if one of its pairs has none.
    """
    offsets = batch.example_offsets
    assert offsets is not None
    first = offsets[:-1]
    known = np.logical_and.reduceat(chosen >= 0, first)
    rows = batch.target_offsets[:-1] + np.maximum(chosen, 0)
    targets = Ragged(batch.targets.values[:0], np.zeros(len(first) + 1, np.int64))
    if known.all():
        targets = _join(batch.targets.take(rows), offsets, separator)
    joined = replace(
        batch,
        pair_ids=[batch.pair_ids[pair] for pair in first.tolist()],
        pair_documents=batch.pair_documents.take(first),
        queries=_join(batch.queries, offsets, separator),
        targets=targets,
        target_offsets=np.arange(len(first) + 1),
        example_offsets=None,
    )
    return joined, np.full(len(first), 0 if known.all() else NO_TARGET)


def _join(rows: Ragged, offsets: np.ndarray, separator: int) -> Ragged:
    rows = rows.compact()
    separated = np.insert(rows.values.astype(np.int32), rows.offsets[1:], separator)
    lengths = np.add.reduceat(rows.lengths + 1, offsets[:-1])
    return Ragged.from_lengths(np.delete(separated, np.cumsum(lengths) - 1), lengths - 1)


def divide_answers(tokens: np.ndarray, count: int, separator: int) -> list[np.ndarray]:
    """Divide the generated ids ``(t,)`` of an example into the answers of its ``count`` questions.

    Answers that are missing are empty, and those beyond ``count`` are left out.
    """
    parts = np.split(tokens, np.flatnonzero(tokens == separator))
    answers = [part[number > 0 :] for number, part in enumerate(parts)][:count]
    return answers + [tokens[:0]] * (count - len(answers))
