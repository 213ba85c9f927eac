"""Objectives that look right and break one law each, as their authors might."""

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from corpora.storage.ragged import Ragged
from objectives.api.authoring import SpanObjective
from objectives.api.masks import IN_SOURCE
from objectives.api.special_tokens import SpecialTokens
from objectives.rendering.render import rendered_lengths


@dataclass(frozen=True)
class Sound(SpanObjective):
    """A few random spans a row: what the others spoil."""

    spans: int = 3

    name: ClassVar[str] = "sound"

    def choose(self, row, rng):
        starts = np.sort(rng.choice(max(len(row) - 2, 0), min(self.spans, max(len(row) // 4, 0)), replace=False))
        return [(int(start), 1) for start in starts]


class Undecorated(Sound):
    """Adds an option, but is not decorated as a dataclass."""

    presets: ClassVar = {"half": {"share": 0.5}}
    name = "undecorated"
    share: float = 0.1


class Inherits(Sound):
    """Changes nothing but annotated class variables, for which it needs no decorator."""

    name: ClassVar[str] = "inherits"
    presets: ClassVar = {"few": {"spans": 1}}


def respelled(masks, starts=None, lengths=None, flags=None):
    """Masks with other values in their spans."""
    columns = {"span_starts": starts, "span_lengths": lengths, "span_flags": flags}
    given = {name: values for name, values in columns.items() if values is not None}
    return replace(
        masks,
        **{
            name: Ragged(np.asarray(v, getattr(masks, name).values.dtype), masks.span_starts.offsets)
            for name, v in given.items()
        },
    )


@dataclass(frozen=True)
class Counts(Sound):
    """Goes on from row to row where its generator stopped."""

    _rng: Any = field(default_factory=lambda: np.random.default_rng(0), init=False, repr=False, compare=False)

    def choose(self, row, rng):
        return super().choose(row, self._rng)


class SeesPlaces(Sound):
    """Draws by the number of the row in its batch."""

    def mask(self, batch, key):
        shift = np.repeat(np.arange(len(batch)) % 2, super().mask(batch, key).span_starts.lengths)
        masks = super().mask(batch, key)
        return respelled(masks, starts=masks.span_starts.values + shift)


class SeesTheBatch(Sound):
    """Hides more where the batch is larger."""

    def mask(self, batch, key):
        return type(self).__base__(spans=min(len(batch), 8)).mask(batch, key)


class Writes(Sound):
    """Zeroes what it hides, in the rows themselves."""

    def mask(self, batch, key):
        masks = super().mask(batch, key)
        for row in range(len(batch)):
            batch.tokens[row][masks.span_starts[row]] = 0
        return masks


class Hashes(Sound):
    """Draws by Python's hash of a text, which differs between processes."""

    name = "hashes"

    def choose(self, row, rng):
        return [(hash(row.sequence_id.hex()) % (len(row) - 1), 1)] if len(row) > 1 else []


class Overlaps(Sound):
    """Spans of two tokens that begin beside each other."""

    def mask(self, batch, key):
        masks = super().mask(batch, key)
        starts = masks.span_starts.values.copy()
        starts[1:] = np.where(np.diff(starts) > 0, starts[:-1], starts[1:])
        return respelled(masks, starts=starts)


class CrossesBorders(Sound):
    """Spans that reach into the next document."""

    def mask(self, batch, key):
        masks = super().mask(batch, key)
        second = [
            starts[1] if len(starts) > 1 else 1 for starts in (batch.document_starts[r] for r in range(len(batch)))
        ]
        return replace(
            masks,
            span_starts=Ragged.from_rows([[border - 1] for border in second], np.int32),
            span_lengths=Ragged.from_rows([[2]] * len(batch), np.int32),
            span_flags=Ragged.from_rows([[5]] * len(batch), np.uint8),
        )


class RunsOver(Sound):
    """The last span ends behind the row."""

    def mask(self, batch, key):
        masks = super().mask(batch, key)
        lengths = masks.span_lengths.values.copy()
        lengths[masks.span_starts.offsets[1:][masks.span_starts.lengths > 0] - 1] += 1_000_000
        return respelled(masks, lengths=lengths)


class ForgetsTheEnd(Sound):
    """Counts targets without <eos>."""

    def mask(self, batch, key):
        masks = super().mask(batch, key)
        return replace(masks, target_lengths=np.maximum(masks.target_lengths - 1, 0).astype(np.int32))


class LosesText(Sound):
    """Hides text that no target asks for."""

    def mask(self, batch, key):
        masks = super().mask(batch, key)
        masks = respelled(masks, flags=np.full(len(masks.span_flags.values), IN_SOURCE))
        source, target = rendered_lengths(batch, masks, self.layout, sentinels=True)
        return replace(masks, source_lengths=source, target_lengths=target)


class ForgetsSentinels(Sound):
    """Says a vocabulary without its sentinels."""

    def validate(self, facts):
        return SpecialTokens(super().validate(facts).ids, facts.vocab_size)


class IgnoresTheKey(Sound):
    """Draws by the sequence id alone: every seed and epoch has the same masks."""

    def choose(self, row, rng):
        return super().choose(row, np.random.default_rng(list(row.sequence_id)))


class IgnoresTheSequence(Sound):
    """Draws by the key alone: all rows are masked in the same places."""

    def mask(self, batch, key):
        same = replace(batch, sequence_ids=np.zeros_like(batch.sequence_ids))
        return replace(super().mask(same, key), sequence_ids=batch.sequence_ids)


class FollowsTheLength(Sound):
    """Draws by the length of the row alone."""

    name = "follows_the_length"

    def choose(self, row, rng):
        return super().choose(row, np.random.default_rng(len(row)))


@dataclass(frozen=True)
class HidesHalf(SpanObjective):
    """Every second token, drawn by the length of the row alone."""

    def choose(self, row, rng):
        return [(int(start), 1) for start in np.flatnonzero(np.random.default_rng(len(row)).random(len(row)) < 0.5)]


@dataclass(frozen=True)
class Divides(SpanObjective):
    """Sound: spans at fixed shares of the row."""

    name: ClassVar[str] = "divides"

    def choose(self, row, rng):
        return [(int(start), 1) for start in np.unique(len(row) * np.arange(9) // 10) if len(row)]


@dataclass(frozen=True)
class EveryThird(SpanObjective):
    """Sound: every third token, counted from the end."""

    name: ClassVar[str] = "every_third"

    def choose(self, row, rng):
        return [(start, 1) for start in range(len(row) - 1, -1, -3)]


@dataclass(frozen=True)
class RarestTokens(SpanObjective):
    """Sound: the tokens with the highest ids."""

    name: ClassVar[str] = "rarest_tokens"

    def choose(self, row, rng):
        return [(int(start), 1) for start in np.argsort(row.tokens, kind="stable")[-len(row) // 8 :]]


class Exits(Sound):
    """Ends the process as if all were well."""

    name = "exits"

    def mask(self, batch, key):
        raise SystemExit(0)


class ExitsAtOnce(Exits):
    name = "exits_at_once"

    def validate(self, facts):
        raise SystemExit(0)


class EatsSeparators(Sound):
    """Shows <pad> where <doc-sep> stands."""

    def render(self, batch, masks, special, *, segment_ids=False, heads=None):
        examples = super().render(batch, masks, special, segment_ids=segment_ids)
        ids = examples.source_ids
        first = (ids == special["<doc-sep>"]).argmax(1)
        ids[np.arange(len(ids)), first] = special["<pad>"]
        return examples


class HidesAnOption(Sound):
    """Tells its options without one that counts."""

    name = "hides_an_option"

    @property
    def options(self):
        return {}


class LeavesOutADefault(Sound):
    """Sound: leaves out an option that has its default."""

    name = "leaves_out_a_default"

    @property
    def options(self):
        return {} if self.spans == 3 else {"spans": self.spans}


class OptionsAreNoJson(Sound):
    """An option that JSON gives back as another type."""

    @property
    def options(self):
        return {"spans": self.spans, "places": (1, 2)}


class NeedsText(Sound):
    """Fails on rows of fewer tokens than it wants."""

    def choose(self, row, rng):
        return [(int(start), 1) for start in rng.choice(len(row), self.spans, replace=False)]


class SelectsOthers(Sound):
    """Adjusting with its own options leaves out a span."""

    adjustable = ("spans",)

    def select(self, batch, masks):
        fewer = [masks.span_starts[row][1:] for row in range(len(batch))]
        starts = Ragged.from_rows(fewer, np.int32)
        ones = Ragged(np.ones_like(starts.values), starts.offsets)
        flags = Ragged(np.full(len(starts.values), 5, np.uint8), starts.offsets)
        masks = replace(masks, span_starts=starts, span_lengths=ones, span_flags=flags)
        source, target = rendered_lengths(batch, masks, self.layout, sentinels=True)
        return replace(masks, source_lengths=source, target_lengths=target)


class NoRender:
    """Has all but one of what an objective has."""

    name = "no_render"
    options: ClassVar[dict] = {}
    global_attention = "none"
    validate = Sound.validate
    mask = Sound.mask


def fails(**options):
    raise ZeroDivisionError("division by zero\nin two lines")
