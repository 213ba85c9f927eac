"""Mixtures of objectives (UL2): each row is masked by one of several components, and a mode token heads its source.

The component of a row is drawn by (key, sequence id); each mask row names it. A component masks, renders and
reconstructs its rows as it does alone. Any registered objective can be a component.

UL2 (Tay et al. 2022, arXiv 2205.05131) mixes regular denoisers (R), extreme ones (X) and a sequential one (S). The
paper's table and its published listing (section 9.2) differ in S; docs/objectives.md says how they and five public
implementations do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import accumulate
from typing import Any, ClassVar, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from corpora.errors import FarspanError, nearest
from corpora.keyed import id_keys
from corpora.packing.assemble import assemble
from corpora.printing import format_count
from corpora.schemas.sequences import SequenceBatch
from corpora.settings import format_value
from corpora.storage.ragged import Ragged
from objectives.api.examples import Examples
from objectives.api.masks import MaskBatch
from objectives.api.options import FITS, check, check_choice, check_whole, normalize, options_of
from objectives.api.protocol import CorpusFacts, Tools
from objectives.api.special_tokens import PAD, SpecialTokens, is_sentinel
from objectives.component import Component, component_table
from objectives.draws.compositions import SpanDraws, draw_masks
from objectives.rendering.kernels import NONE
from objectives.rendering.marked import MarkedSpans

_OPTIONAL = {
    "span_scores": np.float32,
    "span_ranks": np.int32,
    "span_labels": None,
    "replacements": np.int32,
    "global_positions": np.int32,
}


def _denoiser(name: str, mean: float, density: float, mode: str, weight: float = 1.0) -> dict[str, Any]:
    options = {"density": density, "mean_span_lengths": [mean]}
    return {"name": name, "objective": "span", "preset": "t5", "options": options, "weight": weight, "mode": mode}


def _sequential(preset: str, weight: float = 1.0) -> dict[str, Any]:
    return {"name": "s", "objective": "prefix_lm", "preset": preset, "weight": weight, "mode": "[S2S]"}


def _ul2r(r: float, x: float, s: float) -> tuple[dict[str, Any], ...]:
    return (
        _denoiser("r3", 3, 0.15, "[NLU]", r),
        _denoiser("x32", 32, 0.15, "[NLG]", x),
        _denoiser("x3", 3, 0.5, "[NLG]", x),
        _sequential("ul2_prefix_listing", s),
    )


_R_AND_X = (
    _denoiser("r3", 3, 0.15, "[NLU]"),
    _denoiser("r8", 8, 0.15, "[NLU]"),
    _denoiser("x3", 3, 0.5, "[NLG]"),
    _denoiser("x8", 8, 0.5, "[NLG]"),
    _denoiser("x64_15", 64, 0.15, "[NLG]"),
    _denoiser("x64_50", 64, 0.5, "[NLG]"),
)
_UL2 = (*_R_AND_X, _sequential("ul2_prefix"))


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
    _members: tuple[Component, ...] = field(default=(), init=False, repr=False, compare=False)
    _bounds: Any = field(default=None, init=False, repr=False, compare=False)

    name: ClassVar[str] = "mixture"
    adjustable: ClassVar[tuple[str, ...]] = ("adjust",)
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        # Tay et al. 2022, table of denoisers, and 512 decoder positions; it gives no weights, so they are equal.
        "ul2": {"components": _UL2, "target_length": 512},
        # Section 9.2: the listing mixes with equal rates unless others are given.
        "ul2_listing": {"components": (*_R_AND_X, _sequential("ul2_prefix_listing")), "target_length": 512},
        # Tay et al. 2022, arXiv 2210.11399: three span denoisers and S; U-PaLM's shares of S, R and X are 50, 25, 25 %.
        "ul2r": {"components": _ul2r(1.0, 1.0, 1.0)},
        "u_palm": {"components": _ul2r(2, 1, 4)},
    }

    def __post_init__(self) -> None:
        listed = isinstance(self.components, list | tuple) and len(self.components) > 0
        check(self, "components", listed, "a list of tables, each with an objective")
        check_whole(self, "target_length", least=1, null=True)
        check_choice(self, "fit", *FITS)
        components = tuple(map(component_table, self.components))
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
        members = [
            Component.load(table, self.target_length, self.fit, dict(adjust.get(table["name"], {})))
            for table in components
        ]
        sums = list(accumulate(Fraction(component["weight"]) for component in components))
        bounds = np.array([int(bound / sums[-1] * 2**64) for bound in sums[:-1]], np.uint64)
        normalize(self, _members=tuple(members), _bounds=bounds)

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
        result = copy(self)
        normalize(result, _members=tuple(member.equip(tools) for member in self._members))
        return result

    def validate(self, facts: CorpusFacts) -> SpecialTokens:
        """Check every component and its longest target, and number the special tokens of all."""
        tables = [member.validate(facts) for member in self._members]
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
        bounds = [(member, table, member.longest(row)) for member, table in zip(self._members, tables, strict=True)]
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
        bounds = [member.longest(batch) for member in self._members]
        known = [both for both in bounds if both is not None]
        if len(known) < len(bounds):
            return None
        return np.max([source for source, _ in known], axis=0), np.max([target for _, target in known], axis=0)

    def mask(self, batch: SequenceBatch, key: bytes) -> MaskBatch:
        """Draw the component of n rows, by (key, weights, sequence id), and mask each row by it."""
        ids = batch.ids()
        which = np.searchsorted(self._bounds, id_keys(key + b"component", ids)[:, 0], "right")
        order, runs = _runs(which)
        members = [(self._members[number], rows) for number, rows in runs]
        draws = [getattr(member.objective, "draws", None) for member, _ in members]
        if None in draws:
            masks = [member.objective.mask(batch.take(rows), member.key(key)) for member, rows in members]
            return self._joined(masks, order, which)
        tokens, parts = batch.tokens.lengths, batch.document_starts.lengths
        numbers = [
            draw([ids[row] for row in rows], tokens[rows], parts[rows], member.key(key))  # type: ignore[misc]
            for draw, (member, rows) in zip(draws, members, strict=True)
        ]
        return self._named(draw_masks(batch, SpanDraws.join(numbers, order)), which)

    def select(self, batch: SequenceBatch, masks: MaskBatch) -> MaskBatch:
        """Select among stored candidates by each component's adjustable options."""
        which, masks = self._split(masks)
        order, runs = _runs(which)
        parts = []
        for number, rows in runs:
            select = getattr(self._members[number].objective, "select", None)
            parts.append(select(batch.take(rows), masks.take(rows)) if select else masks.take(rows))
        return self._joined(parts, order, which)

    def _joined(self, parts: Sequence[MaskBatch], order: np.ndarray, which: np.ndarray) -> MaskBatch:
        """Put the mask rows of components, sorted by ``order``, at their places."""
        return self._named(
            MaskBatch.concatenate([_with_columns(part) for part in parts]).take(np.argsort(order)), which
        )

    def _named(self, masks: MaskBatch, which: np.ndarray) -> MaskBatch:
        """Name the components of mask rows and count mode tokens; all rows get the same columns, in every batch."""
        names, modes = zip(*((member.name, member.shift) for member in self._members), strict=True)
        return replace(
            _with_columns(masks),
            components=pa.array(names, pa.string()).take(pa.array(which)),
            source_lengths=masks.source_lengths + np.array(modes, np.int32)[which],
        )

    def _split(self, masks: MaskBatch) -> tuple[np.ndarray, MaskBatch]:
        """Return each row's component, ``(n,)``, and the masks as components made them."""
        names = [member.name for member in self._members]
        if masks.components is None:
            raise FarspanError("mixture: the mask rows name no component; run `farspan mask` again")
        numbers = pc.index_in(masks.components, value_set=pa.array(names, pa.string()))
        if numbers.null_count:
            unknown = masks.components.filter(numbers.is_null())[0].as_py()
            raise FarspanError(
                f"mixture: a mask row names component {format_value(unknown)}; components: {', '.join(names)}"
            )
        modes = np.array([member.shift for member in self._members], np.int32)
        which = numbers.to_numpy()
        return which, replace(masks, components=None, source_lengths=masks.source_lengths - modes[which])

    def render(
        self, batch: SequenceBatch, masks: MaskBatch, special: SpecialTokens, *, segment_ids: bool = False
    ) -> Examples:
        """Render each row by its component, with its mode token before the source.

        ``segment_ids``: the mode token belongs to the first document.
        """
        which, masks = self._split(masks)
        modes = [NONE if member.mode is None else special[member.mode] for member in self._members]
        heads = np.array(modes, np.int32)[which]
        # Components that render alike, whatever they hide, are rendered in one call.
        looks = [member.look or number for number, member in enumerate(self._members)]
        order, runs = _runs(np.array([looks.index(look) for look in looks])[which])
        parts = []
        for number, rows in runs:
            member, every = self._members[number], len(runs) == 1
            own = (batch, masks) if every else (batch.take(rows), masks.take(rows))
            if isinstance(member.objective, MarkedSpans) and looks[number] != number:
                parts.append(member.objective.render(*own, special, segment_ids=segment_ids, heads=heads[rows]))
            else:
                parts.append(member.render(*own, special, segment_ids))
        return parts[0] if len(parts) == 1 else Examples.concatenate(parts, special[PAD]).take(np.argsort(order))

    @property
    def reconstruct(self) -> Any:
        """``reconstruct(examples, masks, special)``, if all components have one."""
        if all(hasattr(member.objective, "reconstruct") for member in self._members):
            return self._reconstruct
        raise AttributeError("reconstruct")

    def _reconstruct(self, examples: Examples, masks: MaskBatch, special: SpecialTokens) -> Ragged:
        which, masks = self._split(masks)
        order, runs = _runs(which)
        texts = []
        for number, rows in runs:
            member = self._members[number]
            texts.append(member.reconstruct(examples.take(rows), masks.take(rows), special))
        return Ragged.concatenate(texts).take(np.argsort(order))


def _longest_row(facts: CorpusFacts) -> SequenceBatch:
    """Make a row with the most tokens and documents of a corpus, each token a sentence."""
    parts = min(max(facts.max_documents, 1), max(facts.max_tokens, 1))
    starts, none = np.append(np.arange(parts), facts.max_tokens), np.zeros(parts, np.int64)
    tokens = Ragged(np.zeros(facts.max_tokens, np.int32), starts)
    ids, sentences = pa.array([""] * parts), np.arange(facts.max_tokens)
    return assemble(ids, tokens, sentences, none, none, np.array([0, parts]))


def _runs(which: np.ndarray) -> tuple[np.ndarray, list[tuple[int, np.ndarray]]]:
    """Sort rows by number: the order, ``(n,)`` int64, and each number with its rows; at least one number."""
    order = np.argsort(which, kind="stable")
    numbers, firsts = np.unique(which[order], return_index=True)
    return order, list(zip(numbers.tolist() or [0], np.split(order, firsts[1:]), strict=True))


def _with_columns(masks: MaskBatch) -> MaskBatch:
    """Give mask rows empty lists in those columns that they lack."""
    none, lacking = np.zeros(len(masks) + 1, np.int64), [name for name in _OPTIONAL if getattr(masks, name) is None]
    empty: dict[str, Any] = {name: Ragged(np.empty(0, _OPTIONAL[name]), none) for name in lacking}
    if "span_labels" in empty:
        empty["span_labels"] = pa.ListArray.from_arrays(pa.array(none, pa.int32()), pa.array([], pa.string()))
    return replace(masks, **empty)
