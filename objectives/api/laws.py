"""Laws: properties of every objective on which training, verification and resuming rely.

A law takes a ``Trial`` and yields one line for each row that violates it. ``farspan check-objective`` applies the laws
to a corpus, and the tests apply them to rows of all shapes.
"""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from copy import copy
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pyarrow.compute as pc

from corpora.keyed import id_keys, make_key
from corpora.schemas.sequences import SequenceBatch
from corpora.storage.ragged import Ragged
from objectives.api.masks import CANDIDATE, IN_SOURCE, IN_TARGET, REPLACED, VISIBLE
from objectives.api.plugins import OWN_ERRORS
from objectives.api.protocol import Objective, draw_key
from objectives.api.special_tokens import BEGIN, DOCUMENT_BEGIN, DOCUMENT_END, DOCUMENT_SEPARATOR, END, PAD
from objectives.api.trial import Trial, mask_rows, odd_rows, one_document

_COPIES = 32  # of a row, under other sequence ids and keys


def options_are_json(trial: Trial) -> Iterator[str]:
    """Options are JSON values from which the same objective can be rebuilt."""
    options = dict(trial.objective.options)
    try:
        again = json.loads(json.dumps(options, allow_nan=False))
    except (TypeError, ValueError) as error:
        yield f"options are not JSON values: {error}"
        return
    remade = trial.make(again)
    if dict(remade.options) != options or again != options:
        yield f"options {options} come back as {dict(remade.options)}"
    elif mask_rows(remade.mask(trial.copy(), trial.key)) != mask_rows(trial.masks):
        yield "rebuilt from its options, it makes other masks"
    for name in trial.accepted:
        if name not in options and not _is_option(trial.objective, name):
            yield f"options lacks {name}: other values of it would be lost in worker processes and manifests"


def special_tokens_are_numbered_once(trial: Trial) -> Iterator[str]:
    """Every special token has its own constant id, the tokenizer's id if the tokenizer owns the token."""
    table, again = trial.special, trial.make(None).validate(trial.facts)
    if dict(table.ids) != dict(again.ids) or table.vocab_size != again.vocab_size:
        yield "validate returns other special tokens the second time"
    if lacking := [name for name in (PAD, BEGIN, END) if name not in table.ids]:
        yield f"validate returns no {', '.join(lacking)}"
    if len(set(table.ids.values())) < len(table.ids):
        yield "validate gives two special tokens the same id"
    size = trial.facts.vocab_size
    text = {name: number for name, number in table.ids.items() if number < size}
    if wrong := [name for name, number in text.items() if number not in trial.facts.owned_tokens.values()]:
        yield f"validate gives {wrong[0]} id {table.ids[wrong[0]]}, which is text of the tokenizer (vocab_size {size})"
    if table.vocab_size <= max([size - 1, *table.ids.values()]):
        yield f"validate says vocab_size {table.vocab_size}, its largest id is {max([size - 1, *table.ids.values()])}"


def spans_hold_text(trial: Trial) -> Iterator[str]:
    """Spans are ascending, disjoint and not empty, and each is inside one document, so none contains a separator."""
    masks, batch = trial.masks, trial.batch
    if not np.array_equal(masks.sequence_ids, batch.sequence_ids):
        yield "mask returns other sequences than it was given"
        return
    columns = (masks.span_starts, masks.span_lengths, masks.span_flags)
    for row in range(len(batch)):
        starts, sizes, flags = (column[row].astype(np.int64) for column in columns)
        if not len(starts) == len(sizes) == len(flags):
            yield f"{trial.row(row)}: {len(starts)} starts, {len(sizes)} lengths, {len(flags)} flags"
            continue
        stops, tokens = starts + sizes, int(batch.tokens.lengths[row])
        borders = batch.document_starts[row]
        if (sizes < 1).any():
            yield f"{trial.row(row)}: the span at {starts[sizes < 1][0]} has length {sizes[sizes < 1][0]}"
        elif len(starts) and (starts.min() < 0 or stops.max() > tokens):
            yield f"{trial.row(row)}: spans reach outside the row, from {starts.min()} to {stops.max()}"
        elif (starts[1:] < stops[:-1]).any():
            place = starts[1:][starts[1:] < stops[:-1]][0]
            yield f"{trial.row(row)}: the span at {place} overlaps the previous one, or comes before it"
        elif (crossing := _document(borders, starts) != _document(borders, stops - 1)).any():
            yield f"{trial.row(row)}: the span at {starts[crossing][0]} crosses the border of two documents"
        elif (lost := (flags & (VISIBLE | IN_TARGET) == 0) & (flags != CANDIDATE)).any():
            yield f"{trial.row(row)}: the span at {starts[lost][0]} is neither visible nor in the target"
        elif (both := (flags & REPLACED != 0) & (flags & (VISIBLE | IN_SOURCE) != 0)).any():
            yield f"{trial.row(row)}: the span at {starts[both][0]} is replaced, and also marked or visible"


def masks_are_pure(trial: Trial) -> Iterator[str]:
    """A mask depends on key, options and its row, not on other rows, their order or earlier calls."""
    batch, key, expected = trial.batch, trial.key, mask_rows(trial.masks)
    input_rows = trial.copy()
    trial.make(None).mask(input_rows, key)
    if _bytes(input_rows) != _bytes(batch):
        yield "mask changes its input rows"
    count = len(batch)
    order = np.random.default_rng(0).permutation(count)
    middle = (count + 1) // 2
    for case, objective, parts in (
        ("masked a second time", trial.objective, [np.arange(count)]),
        ("in another order of rows", trial.objective, [order]),
        ("in two batches", trial.make(None), [np.arange(middle), np.arange(middle, count)]),
        ("alone", None, [np.array([row]) for row in range(count)]),
    ):
        for rows in parts:
            result = mask_rows((objective or trial.make(None)).mask(batch.take(rows), key)) if len(rows) else []
            for row, mask in zip(rows.tolist(), result, strict=True):
                if mask != expected[row]:
                    yield f"{trial.row(row)}: another mask when {case}"
                    break


def draws_follow_key_and_sequence(trial: Trial) -> Iterator[str]:
    """Random choices change with the key and with the sequence id, not with the row's length alone."""
    longest = int(trial.batch.tokens.lengths.argmax())
    if trial.batch.tokens.lengths[longest] < 2 * _COPIES:
        return
    copies = trial.batch.take(np.full(_COPIES, longest))
    names = id_keys(make_key(trial.seed, "copies"), map(str, range(_COPIES)))
    copies = replace(copies, sequence_ids=names.view(np.uint8))
    keys = [draw_key(trial.key, draw) for draw in range(_COPIES)]
    by_id = Counter(_choice(mask) for mask in mask_rows(trial.objective.mask(copies, keys[0])))
    by_key = Counter(_choice(mask_rows(trial.objective.mask(copies.take([0]), key))[0]) for key in keys)
    for one, varied, other, fixed in (("sequence id", by_id, "key", by_key), ("key", by_key, "sequence id", by_id)):
        # A rare choice may by chance occur on one side only.
        if len(fixed) > 1 or max(varied.values()) > 0.75 * _COPIES:
            continue
        yield f"{trial.row(longest)}: its mask changes with the {one}, but not with the {other}; draw by both"
    if len(by_id) == len(by_key) == 1 and _is_drawn_by_length(trial, longest):
        yield f"{trial.row(longest)}: its mask is drawn by its length, not by key and sequence id"


def lengths_are_those_of_the_examples(trial: Trial) -> Iterator[str]:
    """The lengths in a mask row are those of the rendered example."""
    for side in ("source", "target"):
        rendered, stored = getattr(trial.examples, f"{side}_lengths"), getattr(trial.masks, f"{side}_lengths")
        for row in np.flatnonzero(rendered != stored)[:1].tolist():
            yield f"{trial.row(row)}: {side} has {rendered[row]} positions, the mask says {stored[row]}"


def examples_fit(trial: Trial) -> Iterator[str]:
    """Examples respect the corpus's sequence length and ``target_length``, are padded, and contain known ids only."""
    examples, special, facts = trial.examples, trial.special, trial.facts
    limit = trial.objective.options.get("target_length")
    for row in np.flatnonzero(examples.source_lengths > facts.sequence_length)[:1].tolist():
        size = examples.source_lengths[row]
        yield f"{trial.row(row)}: source has {size} positions, the corpus was built for {facts.sequence_length}"
    if isinstance(limit, int) and (examples.target_lengths > limit).any():
        row = int(examples.target_lengths.argmax())
        yield f"{trial.row(row)}: target has {examples.target_lengths[row]} positions, target_length is {limit}"
    for side in ("source", "target"):
        ids, lengths = getattr(examples, f"{side}_ids"), getattr(examples, f"{side}_lengths")
        if ids.dtype != np.int32 or ids.shape != (len(trial.batch), int(lengths.max(initial=0))):
            yield f"{side}_ids are {ids.dtype} {ids.shape}; int32 as wide as the longest row is needed"
            continue
        padding_mask = np.arange(ids.shape[1]) < lengths[:, None]
        unknown = padding_mask & ((ids < 0) | (ids >= special.vocab_size))
        for row in np.flatnonzero(unknown.any(1))[:1].tolist():
            number = ids[row][unknown[row]][0]
            yield f"{trial.row(row)}: {side} holds id {number}, the special tokens say vocab_size {special.vocab_size}"
        if (ids[~padding_mask] != special[PAD]).any():
            yield f"{side}_ids are not padded with {PAD}"


def text_comes_back(trial: Trial) -> Iterator[str]:
    """``reconstruct`` recovers the text of every row from source and target; not checked for objectives without it."""
    if not hasattr(trial.objective, "reconstruct"):
        return
    text = trial.objective.reconstruct(trial.examples, trial.masks, trial.special)
    for row in range(len(trial.batch)):
        if not np.array_equal(text[row], trial.batch.tokens[row]):
            yield f"{trial.row(row)}: reconstruct returns another text"


def separators_stay(trial: Trial) -> Iterator[str]:
    """The source keeps all separators that the documents of a row require."""
    starts, sizes = trial.batch.document_starts, trial.batch.tokens.lengths
    parts = starts.lengths
    full = np.array([len(np.unique(own[own < size])) for own, size in zip(starts, sizes, strict=True)], np.int64)
    for name in (DOCUMENT_SEPARATOR, DOCUMENT_BEGIN, DOCUMENT_END):
        if name not in trial.special.ids:
            continue
        counts = ((trial.examples.source_ids == trial.special[name]) & trial.examples.source_mask).sum(1)
        rules = [count + edge for count in (parts, full) for edge in (0, -1)]
        for rows in _kinds_of_rows(trial):
            if not counts[rows].any() or any((counts == rule.clip(0))[rows].all() for rule in rules):
                continue
            row = int(rows[(counts != rules[1].clip(0))[rows].argmax()])
            yield f"{trial.row(row)}: source has {counts[row]} times {name}; a separator may be hidden, or one too many"


def selection_keeps_its_own(trial: Trial) -> Iterator[str]:
    """``select`` does not change masks made with the same options, and adjustable options do not affect draws."""
    adjustable = getattr(trial.objective, "adjustable", ())
    if not adjustable:
        return
    if unknown := [option for option in adjustable if option not in trial.objective.options]:
        yield f"adjustable option {unknown[0]} is not one of its options"
    selected = mask_rows(trial.objective.select(trial.copy(), trial.masks))  # type: ignore[attr-defined]
    for row, (one, other) in enumerate(zip(selected, mask_rows(trial.masks), strict=True)):
        if one != other:
            yield f"{trial.row(row)}: select and mask return different masks with the same options"
            break


def odd_rows_have_a_result(trial: Trial) -> Iterator[str]:
    """Masking works for rows of no token, one token, one sentence, one repeated token, and for an empty batch."""
    for case, batch in odd_rows(trial.batch):
        odd = replace(trial, batch=batch)
        try:
            for law in (spans_hold_text, lengths_are_those_of_the_examples, examples_fit, text_comes_back):
                yield from (f"{case}: {problem}" for problem in law(odd))
        except OWN_ERRORS as error:
            yield f"{case}: {type(error).__name__}: {error}"


LAWS: tuple[Callable[[Trial], Iterator[str]], ...] = (
    options_are_json,
    special_tokens_are_numbered_once,
    spans_hold_text,
    masks_are_pure,
    draws_follow_key_and_sequence,
    lengths_are_those_of_the_examples,
    examples_fit,
    text_comes_back,
    separators_stay,
    selection_keeps_its_own,
    odd_rows_have_a_result,
)


def broken(law: Callable[[Trial], Iterator[str]], trial: Trial) -> list[str]:
    """List the violations of a law, including exceptions raised by the objective."""
    problems: list[str] = []
    try:
        problems.extend(law(trial))
    except OWN_ERRORS as error:
        problems.append(f"{type(error).__name__}: {error}")
    return problems


def _choice(mask: tuple[Any, ...]) -> str:
    return str(mask[1:])  # without the sequence id


def _is_drawn_by_length(trial: Trial, row: int) -> bool:
    """Return True if other text in a row changes nothing, and one token less moves most spans, as if drawn anew.

    Spans that are chosen by place move by one position at most. For each of ``_COPIES`` lengths, the share of spans
    that do so is compared with the share of positions that are so near to a span.
    """
    tokens, sentences = trial.batch.tokens[row], trial.batch.sentence_starts[row]

    def starts(text: np.ndarray) -> np.ndarray:
        batch = one_document(trial.batch.take([row]), text, sentences[sentences < len(text)])
        masks = trial.objective.mask(batch, trial.key)
        return masks.span_starts[0][masks.span_flags[0] != CANDIDATE]

    shuffle = np.random.default_rng(0).permutation
    if not all(np.array_equal(starts(tokens), starts(shuffle(tokens))) for _ in range(8)):
        return False
    stay, chance = [], []
    for before, after in itertools.pairwise(starts(tokens[: len(tokens) - cut]) for cut in range(_COPIES)):
        near = np.unique(np.add.outer(before, (-1, 0, 1)))
        stay.append(np.isin(after, near).mean() if len(after) else 1.0)
        chance.append(len(near) / len(tokens))
    return bool(np.mean(stay) < (1 + np.mean(chance)) / 2)


def _is_option(objective: Objective, name: str) -> bool:
    """Return True if ``options`` has the name at least for unusual values of the attribute."""
    other = copy(objective)
    with suppress(AttributeError):
        object.__setattr__(other, name, "another value")
    return name in other.options


def _kinds_of_rows(trial: Trial) -> list[np.ndarray]:
    """Return the rows of each component of a mixture, or all rows."""
    names = trial.masks.components
    if names is None:
        return [np.arange(len(trial.batch))]
    return [np.flatnonzero(pc.equal(names, name)) for name in names.unique()]


def _bytes(batch: SequenceBatch) -> list[bytes]:
    columns = [getattr(batch, field.name) for field in fields(batch)]
    arrays = [column.compact().values if isinstance(column, Ragged) else column for column in columns]
    return [array.tobytes() for array in arrays if isinstance(array, np.ndarray)]


def _document(borders: np.ndarray, places: np.ndarray) -> np.ndarray:
    return np.searchsorted(borders, places, "right")
