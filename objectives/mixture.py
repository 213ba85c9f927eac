"""Mixtures of objectives (UL2): each row is masked by one of several components, and a mode token heads its source.

The component of a row is drawn by (key, sequence id); each mask row names it. A component masks, renders and
reconstructs its rows as it does alone. Any registered objective can be a component.

UL2 (Tay et al. 2022, arXiv 2205.05131) mixes regular denoisers (R), extreme ones (X) and a sequential one (S). The
paper's table and its published listing (section 9.2) differ in S; docs/objectives.md says how they and five public
implementations do.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, field, fields, replace
from fractions import Fraction
from hashlib import blake2b
from itertools import accumulate
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from corpora.errors import FarspanError, nearest
from corpora.keyed import id_keys
from corpora.printing import format_count
from corpora.schemas.sequences import NO_CLUSTER, SequenceBatch
from corpora.settings import format_value
from corpora.storage.ragged import Ragged
from objectives.api.examples import Examples
from objectives.api.masks import MaskBatch
from objectives.api.options import FITS, check, check_choice, check_whole, is_number, normalize, options_of
from objectives.api.protocol import CorpusFacts, Objective, Tools, equip, load_objective, objective_of
from objectives.api.special_tokens import BEGIN, END, PAD, UNKNOWN, SpecialTokens, is_sentinel
from objectives.rendering.merge import drop_modes, merge_examples

_OPTIONAL = {
    "span_scores": np.float32,
    "span_ranks": np.int32,
    "replacements": np.int32,
    "global_positions": np.int32,
}
_KEYS = ("name", "objective", "preset", "options", "weight", "mode")


def _denoiser(name: str, mean: float, density: float, mode: str, weight: float = 1.0) -> dict[str, Any]:
    options = {"density": density, "mean_span_lengths": [mean]}
    return {"name": name, "objective": "span", "preset": "t5", "options": options, "weight": weight, "mode": mode}


def _sequential(preset: str, weight: float = 1.0) -> dict[str, Any]:
    return {"name": "s", "objective": "prefix_lm", "preset": preset, "weight": weight, "mode": "[S2S]"}


_R_AND_X = (
    _denoiser("r3", 3, 0.15, "[NLU]"),
    _denoiser("r8", 8, 0.15, "[NLU]"),
    _denoiser("x3", 3, 0.5, "[NLG]"),
    _denoiser("x8", 8, 0.5, "[NLG]"),
    _denoiser("x64_15", 64, 0.15, "[NLG]"),
    _denoiser("x64_50", 64, 0.5, "[NLG]"),
)
_UL2 = (*_R_AND_X, _sequential("ul2_prefix"))


class _Member(NamedTuple):
    """A component, ready to use; ``shift`` is the number of positions of its mode token."""

    name: str
    mode: str | None
    objective: Objective

    @property
    def shift(self) -> int:
        return int(self.mode is not None)


@dataclass(frozen=True)
class Mixture:
    """Objective ``mixture``: draws one of several objectives for each row.

    Presets: ``ul2`` has the seven denoisers of the paper's table, S hiding the last quarter behind a sentinel;
    ``ul2_listing`` those of the paper's code, S with a uniform pivot and no sentinel; ``ul2r`` the four of UL2R, and
    ``u_palm`` the same with half of the rows for S.

    Attributes:
        components: tables with ``objective`` (an objective, or a preset's name), and optionally ``preset``,
            ``options``, ``name`` (the objective's, if not given), ``weight`` (1) and ``mode``: the token at the head of
            the source, the tokenizer's own special token of that name or an appended one; without it, none.
        target_length: decoder positions of every component; None for as many as needed.
        fit: if a component may need more than ``target_length``: ``error`` before work starts, or ``reduce`` or
            ``window``, which give its options ``target_length`` and ``fit`` these values.
        adjust: component -> adjustable options that override its ``options``; may differ from those of stored masks.
    """

    components: Sequence[Mapping[str, Any]] = _UL2
    target_length: int | None = None
    fit: str = "error"
    adjust: Mapping[str, Mapping[str, Any]] | None = None
    _members: tuple[_Member, ...] = field(default=(), init=False, repr=False, compare=False)

    name: ClassVar[str] = "mixture"
    adjustable: ClassVar[tuple[str, ...]] = ("adjust",)
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        # Tay et al. 2022, table of denoisers, and 512 decoder positions; it gives no weights, so they are equal.
        "ul2": {"components": _UL2, "target_length": 512},
        # Section 9.2: the listing mixes with equal rates unless others are given.
        "ul2_listing": {"components": (*_R_AND_X, _sequential("ul2_prefix_listing")), "target_length": 512},
        # Tay et al. 2022, arXiv 2210.11399: three span denoisers and S; U-PaLM's shares of S, R and X are 50, 25, 25 %.
        "ul2r": {
            "components": (
                _denoiser("r3", 3, 0.15, "[NLU]"),
                _denoiser("x32", 32, 0.15, "[NLG]"),
                _denoiser("x3", 3, 0.5, "[NLG]"),
                _sequential("ul2_prefix_listing"),
            )
        },
        "u_palm": {
            "components": (
                _denoiser("r3", 3, 0.15, "[NLU]", 2),
                _denoiser("x32", 32, 0.15, "[NLG]", 1),
                _denoiser("x3", 3, 0.5, "[NLG]", 1),
                _sequential("ul2_prefix_listing", 4),
            )
        },
    }

    def __post_init__(self) -> None:
        listed = isinstance(self.components, list | tuple) and len(self.components) > 0
        check(self, "components", listed, "a list of tables, each with an objective")
        check_whole(self, "target_length", least=1, null=True)
        check_choice(self, "fit", *FITS)
        components = tuple(_normal(value) for value in self.components)
        names = [component["name"] for component in components]
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise FarspanError(f"mixture: two components are called {twice!r}; give each a name of its own")
        adjust = {} if self.adjust is None else self.adjust
        tables = isinstance(adjust, Mapping) and all(isinstance(table, Mapping) for table in adjust.values())
        check(self, "adjust", tables, "a table: component -> options")
        if unknown := [name for name in adjust if name not in names]:
            raise FarspanError(
                f"mixture: option adjust names {unknown[0]!r}{nearest(unknown[0], names)}; components: "
                f"{', '.join(names)}"
            )
        normalize(self, components=components)
        members = [self._load(component, dict(adjust.get(component["name"], {}))) for component in components]
        normalize(self, _members=tuple(members))

    def _load(self, component: Mapping[str, Any], adjusted: Mapping[str, Any]) -> _Member:
        name, options = component["name"], dict(component["options"])
        if self.target_length is not None and self.fit != "error" and "target_length" in options:
            own = options["target_length"]
            options["target_length"] = self.target_length if own is None else min(own, self.target_length)
            options |= {"fit": self.fit} if "fit" in options else {}
        with _named(name):
            objective = load_objective(component["objective"], options={**options, **adjusted})
        adjustable = getattr(objective, "adjustable", ())
        if fixed := [option for option in adjusted if option not in adjustable]:
            raise FarspanError(
                f"mixture: option {fixed[0]} of component {name} cannot be adjusted (can be: "
                f"{', '.join(adjustable) or 'none'}); give it in components"
            )
        return _Member(name, component["mode"], objective)

    @property
    def options(self) -> dict[str, Any]:
        """All options as JSON values."""
        return options_of(self)

    @property
    def global_attention(self) -> str:
        """The rule of all components, or ``mixed``."""
        rules = {member.objective.global_attention for member in self._members}
        return rules.pop() if len(rules) == 1 else "mixed"

    @property
    def tools(self) -> dict[str, str]:
        """Tools of all components; one that differs between components has their names."""
        tools: dict[str, str] = {}
        for member in self._members:
            for tool, version in getattr(member.objective, "tools", {}).items():
                tools[tool if tools.get(tool, version) == version else f"{member.name}.{tool}"] = version
        return tools

    def with_tools(self, tools: Tools) -> Mixture:
        """Return a copy whose components have the tools that they take."""
        result, members = copy(self), []
        for member in self._members:
            with _named(member.name):
                members.append(member._replace(objective=equip(member.objective, tools)))
        normalize(result, _members=tuple(members))
        return result

    def validate(self, facts: CorpusFacts) -> SpecialTokens:
        """Check every component and its longest target, and number the special tokens of all."""
        tables = [_validated(member, facts) for member in self._members]
        self._check_targets(tables, facts)
        names = [name for table in tables for name in table.ids if not is_sentinel(name)]
        most = max((table.sentinels for table in tables), key=len)
        descending = len(most) > 1 and most[-1] >= facts.vocab_size and most[-2] > most[-1]
        modes = [member.mode for member in self._members if member.mode is not None]
        order: Literal["ascending", "descending"] = "descending" if descending else "ascending"
        return SpecialTokens.append(facts.vocab_size, facts.owned_tokens, [*names, *modes], len(most), order)

    def _check_targets(self, tables: Sequence[SpecialTokens], facts: CorpusFacts) -> None:
        """Refuse targets that may be too long, and labels beside targets."""
        row = _longest_row(facts)
        bounds = [(member, table, _longest(member, row)) for member, table in zip(self._members, tables, strict=True)]
        known = [(int(longest[1][0]), member, table) for member, table, longest in bounds if longest is not None]
        needed, member, table = max(known, key=lambda each: each[0], default=(0, None, None))
        if member and table and self.target_length is not None and needed > self.target_length:
            raise FarspanError(
                f"mixture: option target_length is {self.target_length}, but component {member.name} "
                f"({member.objective.name}) may need {needed} decoder positions and "
                f"{format_count(len(table.sentinels), 'sentinel')} for a row of {facts.max_tokens} tokens in "
                f"{format_count(facts.max_documents, 'document')}; raise target_length to {needed}, give fit=window or "
                "fit=reduce, which objectives with options target_length and fit take, or a corpus of shorter rows"
            )
        kinds = {target > 0: member.name for target, member, _ in known}
        if facts.max_tokens > 1 and len(kinds) > 1:
            raise FarspanError(
                f"mixture: component {kinds[True]} makes targets, {kinds[False]} only labels for an encoder alone; "
                "mix components of one kind"
            )

    def longest(self, batch: SequenceBatch) -> tuple[np.ndarray, np.ndarray] | None:
        """Return upper bounds on source and target lengths over all draws, ``(n,)`` each; None if one is unknown."""
        bounds = [_longest(member, batch) for member in self._members]
        known = [both for both in bounds if both is not None]
        if len(known) < len(bounds):
            return None
        return np.max([source for source, _ in known], axis=0), np.max([target for _, target in known], axis=0)

    def mask(self, batch: SequenceBatch, key: bytes) -> MaskBatch:
        """Draw the component of n rows, by (key, weights, sequence id), and mask each row by it."""
        which, parts = self._draw(batch, key), []
        order, runs = _runs(which)
        rows = _take(batch, order)
        for number, first, stop in runs or [(0, 0, 0)]:
            member = self._members[number]
            own_key = blake2b(member.name.encode(), digest_size=16, key=key + b"component").digest()
            parts.append(member.objective.mask(_slice(rows, first, stop), own_key))
        return self._joined(parts, order, which)

    def _draw(self, batch: SequenceBatch, key: bytes) -> np.ndarray:
        """Draw a component for each row, ``(n,)`` int64."""
        sums = list(accumulate(Fraction(component["weight"]) for component in self.components))
        bounds = np.array([int(bound / sums[-1] * 2**64) for bound in sums[:-1]], np.uint64)
        return np.searchsorted(bounds, id_keys(key + b"component", batch.ids())[:, 0], "right")

    def select(self, batch: SequenceBatch, masks: MaskBatch) -> MaskBatch:
        """Select among stored candidates by each component's adjustable options."""
        parts = []
        which, order, groups = self._groups(masks)
        rows = _take(batch, order)
        for member, first, stop, own in groups:
            select = getattr(member.objective, "select", None)
            parts.append(select(_slice(rows, first, stop), own) if select else own)
        return self._joined(parts, order, which) if parts else masks

    def _joined(self, parts: Sequence[MaskBatch], order: np.ndarray, which: np.ndarray) -> MaskBatch:
        """Put the mask rows of components, sorted by ``order``, at their places; name them and count mode tokens.

        Columns that a component does not use become empty lists, so that a row has the same columns in every batch.
        """
        none = np.zeros(len(which) + 1, np.int64)
        labels = pa.ListArray.from_arrays(pa.array(none, pa.int32()), pa.array([], pa.string()))
        empty: dict[str, Any] = {name: Ragged(np.empty(0, kind), none) for name, kind in _OPTIONAL.items()}
        empty["span_labels"] = labels
        used = {name for name in empty if any(getattr(part, name) is not None for part in parts)}
        filled = []
        for part in parts:
            lacking = {name: _slice_column(empty[name], 0, len(part)) for name in used if getattr(part, name) is None}
            filled.append(replace(part, **lacking) if lacking else part)
        masks = MaskBatch.concatenate(filled).take(np.argsort(order))
        names, shifts = zip(*((member.name, member.shift) for member in self._members), strict=True)
        return replace(
            masks,
            components=pa.array(names, pa.string()).take(pa.array(which)),
            source_lengths=(masks.source_lengths + np.array(shifts)[which]).astype(np.int32),
            **{name: column for name, column in empty.items() if name not in used},
        )

    def render(
        self, batch: SequenceBatch, masks: MaskBatch, special: SpecialTokens, *, segment_ids: bool = False
    ) -> Examples:
        """Render each row by its component, with its mode token before the source.

        ``segment_ids``: the mode token belongs to the first document.
        """
        parts = []
        _, order, groups = self._groups(masks)
        rows = _take(batch, order)
        for member, first, stop, own in groups or [(self._members[0], 0, 0, masks)]:
            render = member.objective.render
            if segment_ids and "segment_ids" not in inspect.signature(render).parameters:
                raise FarspanError(
                    f"mixture: component {member.name} ({member.objective.name}) does not say which document a "
                    "position belongs to: its render takes no segment_ids; set data.across_documents to true"
                )
            rendering = {"segment_ids": True} if segment_ids else {}
            examples = render(_slice(rows, first, stop), own, special, **rendering)
            parts.append((order[first:stop], None if member.mode is None else special[member.mode], examples))
        return merge_examples(masks.sequence_ids, parts, special[PAD])

    @property
    def reconstruct(self) -> Any:
        """``reconstruct(examples, masks, special)``, if all components have one."""
        if all(hasattr(member.objective, "reconstruct") for member in self._members):
            return self._reconstruct
        raise AttributeError("reconstruct")

    def _reconstruct(self, examples: Examples, masks: MaskBatch, special: SpecialTokens) -> Ragged:
        texts: list[np.ndarray] = [np.empty(0, np.int32)] * len(masks)
        _, order, groups = self._groups(masks)
        for member, first, stop, own in groups:
            shown = drop_modes(examples.take(order[first:stop]), member.shift)
            text = member.objective.reconstruct(shown, own, special)  # type: ignore[attr-defined]
            for place, row in enumerate(order[first:stop].tolist()):
                texts[row] = text[place]
        return Ragged.from_rows(texts, np.int32)

    def _groups(self, masks: MaskBatch) -> tuple[np.ndarray, np.ndarray, list[tuple[_Member, int, int, MaskBatch]]]:
        """Sort mask rows by component.

        Returns each row's component and the order, ``(n,)`` each; and for each component its first row and stop in that
        order, and its masks without mode token.
        """
        names = [member.name for member in self._members]
        if masks.components is None:
            raise FarspanError("mixture: the mask rows name no component; run `farspan mask` again")
        numbers = pc.fill_null(pc.index_in(masks.components, value_set=pa.array(names, pa.string())), -1)
        which = numbers.to_numpy(zero_copy_only=False)
        if (which < 0).any():
            unknown = masks.components[int(which.argmin())].as_py()
            raise FarspanError(
                f"mixture: a mask row names component {format_value(unknown)}; components: {', '.join(names)}"
            )
        order, runs = _runs(which)
        rows, groups = _take(replace(masks, components=None), order), []
        for number, first, stop in runs:
            member, own = self._members[number], _slice(rows, first, stop)
            lengths = own.source_lengths - np.int32(member.shift)
            groups.append((member, first, stop, replace(own, source_lengths=lengths)))
        return which, order, groups


def _normal(value: Any) -> dict[str, Any]:
    """Check a component and return it with all options of its objective, so that equal components are equal."""
    if not isinstance(value, Mapping) or not isinstance(value.get("objective"), str):
        raise FarspanError(f"mixture: a component is {format_value(value)}; give a table with an objective")
    if unknown := [key for key in value if key not in _KEYS]:
        raise FarspanError(
            f"mixture: a component has no key {unknown[0]!r}{nearest(unknown[0], _KEYS)}; its keys: {', '.join(_KEYS)}"
        )
    name, weight, mode = value.get("name", value["objective"]), value.get("weight", 1), value.get("mode")
    with _named(str(name)):
        objective, preset = objective_of(value["objective"], value.get("preset"))
        if objective == Mixture.name:
            raise FarspanError("a mixture cannot be a component; list its components instead")
        if not isinstance(name, str) or not name:
            raise FarspanError(f"name is {format_value(name)}; give a text")
        if not is_number(weight) or weight <= 0:
            raise FarspanError(f"weight is {format_value(weight)}; give a number above 0")
        mode = None if mode == "null" else mode
        named = (
            isinstance(mode, str) and bool(mode) and mode not in (PAD, BEGIN, END, UNKNOWN) and not is_sentinel(mode)
        )
        if mode is not None and not named:
            raise FarspanError(f"mode is {format_value(mode)}; give a token of its own, e.g. [NLU]")
        options = dict(load_objective(objective, preset, value.get("options")).options)
    return {"name": name, "objective": objective, "options": options, "weight": weight, "mode": mode}


@contextmanager
def _named(component: str) -> Iterator[None]:
    """Name the component in errors of its objective."""
    try:
        yield
    except FarspanError as error:
        raise FarspanError(f"mixture: component {component}: {error}") from error


def _validated(member: _Member, facts: CorpusFacts) -> SpecialTokens:
    """Validate a component with room for its mode token, and return its special tokens."""
    room = facts.room_per_sequence - member.shift
    with _named(member.name):
        try:
            less = replace(facts, sequence_length=facts.sequence_length - member.shift, room_per_sequence=room)
            return member.objective.validate(less)
        except FarspanError:
            member.objective.validate(facts)  # raises what is wrong even without a mode token
            raise FarspanError(
                f"its mode token {member.mode} needs one position more in a row; build the corpus with "
                f"--room-per-sequence {facts.room_per_sequence + 1}"
            ) from None


def _longest(member: _Member, batch: SequenceBatch) -> tuple[np.ndarray, np.ndarray] | None:
    longest = getattr(member.objective, "longest", None)
    both = longest(batch) if longest else None
    return None if both is None else (both[0] + member.shift, both[1])


def _longest_row(facts: CorpusFacts) -> SequenceBatch:
    """Make a row with the most tokens and documents of a corpus, each token a sentence."""
    parts = min(max(facts.max_documents, 1), max(facts.max_tokens, 1))
    zeros = Ragged.from_rows([np.zeros(parts)], np.int32)
    return SequenceBatch(
        np.zeros((1, 16), np.uint8),
        Ragged.from_rows([np.zeros(facts.max_tokens)], np.int32),
        Ragged.from_rows([np.arange(parts)], np.int32),
        pa.array([[""] * parts], pa.list_(pa.string())),
        zeros,
        zeros,
        Ragged.from_rows([np.arange(facts.max_tokens)], np.int32),
        np.array([NO_CLUSTER]),
    )


def _runs(which: np.ndarray) -> tuple[np.ndarray, list[tuple[int, int, int]]]:
    """Sort rows by component: the order, ``(n,)`` int64, and number, first place and stop of each component in it."""
    order = np.argsort(which, kind="stable")
    numbers, firsts = np.unique(which[order], return_index=True)
    stops = np.append(firsts, len(which))[1 : len(numbers) + 1]
    return order, list(zip(numbers.tolist(), firsts.tolist(), stops.tolist(), strict=True))


def _take(batch: Any, order: np.ndarray) -> Any:
    """Reorder a batch, without copying if it is in order."""
    return batch if (order[1:] > order[:-1]).all() else batch.take(order)


def _slice(batch: Any, first: int, stop: int) -> Any:
    """View consecutive rows of a batch."""
    columns = (getattr(batch, column.name) for column in fields(batch))
    return type(batch)(*(_slice_column(column, first, stop) for column in columns))


def _slice_column(column: Any, first: int, stop: int) -> Any:
    if isinstance(column, Ragged):
        return Ragged(column.values, column.offsets[first : stop + 1])
    return None if column is None else column[first:stop]
