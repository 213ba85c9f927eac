"""``Component``: an objective of a mixture, with a name, a weight and the mode token at the head of its sources."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any

import numpy as np

from corpora.errors import FarspanError, nearest
from corpora.schemas.sequences import SequenceBatch
from corpora.settings import format_value
from corpora.storage.ragged import Ragged
from objectives.api.examples import IGNORED, Examples
from objectives.api.masks import MaskBatch
from objectives.api.options import is_number
from objectives.api.protocol import OBJECTIVES, CorpusFacts, Objective, Tools, equip, load_objective
from objectives.api.special_tokens import BEGIN, END, PAD, UNKNOWN, SpecialTokens, is_sentinel
from objectives.rendering.layout import Layout
from objectives.rendering.marked import MarkedSpans

_ALONG_SOURCE = ("source_ids", "labels", "segment_ids", "global_positions")
_KEYS = ("name", "objective", "preset", "options", "weight", "mode")


def component_table(value: Any) -> dict[str, Any]:
    """Check the table of a component and add all options of its objective, so that equal components are equal."""
    if not isinstance(value, Mapping) or not isinstance(value.get("objective"), str):
        raise FarspanError(f"mixture: a component is {format_value(value)}; give a table with an objective")
    if unknown := [key for key in value if key not in _KEYS]:
        raise FarspanError(
            f"mixture: a component has no key {unknown[0]!r}{nearest(unknown[0], _KEYS)}; its keys: {', '.join(_KEYS)}"
        )
    name, weight, mode = value.get("name", value["objective"]), value.get("weight", 1), value.get("mode")
    with _naming(str(name)):
        objective, preset = OBJECTIVES.resolve(value["objective"], value.get("preset"))
        if objective == "mixture":
            raise FarspanError("a mixture cannot be a component; list its components instead")
        if not isinstance(name, str) or not name:
            raise FarspanError(f"name is {format_value(name)}; give a text")
        if not is_number(weight) or weight <= 0:
            raise FarspanError(f"weight is {format_value(weight)}; give a number above 0")
        mode = None if mode == "null" else mode
        if mode is not None and (
            not isinstance(mode, str) or mode in ("", PAD, BEGIN, END, UNKNOWN) or is_sentinel(mode)
        ):
            raise FarspanError(f"mode is {format_value(mode)}; give a token of its own, e.g. [NLU]")
        options = dict(load_objective(objective, preset, value.get("options")).options)
    return {"name": name, "objective": objective, "options": options, "weight": weight, "mode": mode}


@dataclass(frozen=True)
class Component:
    """A component, ready to use.

    Attributes:
        name: its name in mask rows and errors.
        mode: the mode token, or None.
    """

    name: str
    mode: str | None
    objective: Objective

    @classmethod
    def load(
        cls, table: Mapping[str, Any], target_length: int | None, fit: str, adjusted: Mapping[str, Any]
    ) -> Component:
        """Load the component of a table within the mixture's budget, with ``adjusted`` options in place of its own."""
        name, options = table["name"], dict(table["options"])
        if target_length is not None and fit != "error" and "target_length" in options:
            own = options["target_length"]
            options["target_length"] = target_length if own is None else min(own, target_length)
            options |= {"fit": fit} if "fit" in options else {}
        with _naming(name):
            objective = load_objective(table["objective"], options={**options, **adjusted})
        adjustable = getattr(objective, "adjustable", ())
        if fixed := [option for option in adjusted if option not in adjustable]:
            raise FarspanError(
                f"mixture: option {fixed[0]} of component {name} cannot be adjusted (can be: "
                f"{', '.join(adjustable) or 'none'}); give it in components"
            )
        return cls(name, table["mode"], objective)

    @property
    def shift(self) -> int:
        """Number of positions of the mode token."""
        return int(self.mode is not None)

    @property
    def look(self) -> Layout | None:
        """All that decides how spans are rendered, if ``render`` can put mode tokens before sources itself."""
        objective = self.objective
        if not isinstance(objective, MarkedSpans) or type(objective).render is not MarkedSpans.render:
            return None
        return None if objective.marker or objective.global_attention != "none" else objective.layout

    def key(self, key: bytes) -> bytes:
        """Return the key of this component's draws."""
        return blake2b(self.name.encode(), digest_size=16, key=key + b"component").digest()

    def equip(self, tools: Tools) -> Component:
        """Return a copy whose objective has the tools that it takes."""
        with _naming(self.name):
            return replace(self, objective=equip(self.objective, tools))

    def validate(self, facts: CorpusFacts) -> SpecialTokens:
        """Validate the objective with room for the mode token, and return its special tokens."""
        room = facts.room_per_sequence - self.shift
        with _naming(self.name):
            try:
                less = replace(facts, sequence_length=facts.sequence_length - self.shift, room_per_sequence=room)
                return self.objective.validate(less)
            except FarspanError:
                self.objective.validate(facts)  # raises what is wrong even without a mode token
                raise FarspanError(
                    f"its mode token {self.mode} needs one position more in a row; build the corpus with "
                    f"--room-per-sequence {facts.room_per_sequence + 1}"
                ) from None

    def longest(self, batch: SequenceBatch) -> tuple[np.ndarray, np.ndarray] | None:
        """Return upper bounds on source and target lengths over all draws, or None if they are unknown."""
        longest = getattr(self.objective, "longest", None)
        both = longest(batch) if longest else None
        return None if both is None else (both[0] + self.shift, both[1])

    def render(self, batch: SequenceBatch, masks: MaskBatch, special: SpecialTokens, segment_ids: bool) -> Examples:
        """Render rows with the mode token before every source; it belongs to the first document."""
        if segment_ids and "segment_ids" not in inspect.signature(self.objective.render).parameters:
            raise FarspanError(
                f"mixture: component {self.name} ({self.objective.name}) does not say which document a position "
                "belongs to: its render takes no segment_ids; set data.across_documents to true"
            )
        rendering: dict[str, Any] = {"segment_ids": True} if segment_ids else {}
        examples = self.objective.render(batch, masks, special, **rendering)
        if self.mode is None:
            return examples
        first = dict(zip(_ALONG_SOURCE, (special[self.mode], IGNORED, 0, 0), strict=True))
        columns = {name: getattr(examples, name) for name in first if getattr(examples, name) is not None}
        wide = {name: np.insert(column, 0, first[name], axis=1) for name, column in columns.items()}
        marked = wide.get("global_positions")
        if marked is not None and marked.shape[1] > 1:
            marked[:, 0] = marked[:, 1]  # a first token that sees everything hands this on to the mode token before it
        return replace(examples, **wide, source_lengths=examples.source_lengths + np.int32(1))

    def reconstruct(self, examples: Examples, masks: MaskBatch, special: SpecialTokens) -> Ragged:
        """Recover the text of rows from the output of ``render``, if the objective can."""
        columns = {name: getattr(examples, name) for name in _ALONG_SOURCE}
        shown = {name: column[:, self.shift :] for name, column in columns.items() if column is not None}
        alone = replace(examples, **shown, source_lengths=examples.source_lengths - np.int32(self.shift))
        return self.objective.reconstruct(alone, masks, special)  # type: ignore[attr-defined]


@contextmanager
def _naming(component: str) -> Iterator[None]:
    """Name the component in errors of its objective."""
    try:
        yield
    except FarspanError as error:
        raise FarspanError(f"mixture: component {component}: {error}") from error
