"""Checks of the examples before the first step: lengths, targets, global positions."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from corpora.errors import FarspanError
from objectives.api.examples import IGNORED, Examples
from trainer.data.config import DataConfig, ShardedSource, Source, naming_source
from trainer.data.masked_corpus import Longest, MaskedCorpus
from trainer.data.mixture import Mixture
from trainer.data.packed import unpacked
from trainer.data.paired import PairedSource
from trainer.model.pattern import Pattern

TRIED = 256  # rows that are rendered if the first few are inconclusive


def check_examples(
    mixture: Mixture, data: DataConfig, pattern: Pattern, section: str, rows: int | None = None
) -> list[str]:
    """Check that each part of a mixture has targets, fits the widths, and has global positions; return warnings."""
    warnings: list[str] = []
    for part in mixture.parts:
        source = unpacked(part.source)
        with naming_source(data, part.name, section):
            _check_targets(source)
            found = [*check_lengths(source, data, section, rows), *_check_globals(source, data, pattern)]
            if isinstance(source, PairedSource) and not source.cached:
                found += _cuts(source, data, section, rows)
        place = f"source {part.name!r} of {section}.mixture" if data.mixture else section
        warnings += [f"{place}: {warning}" for warning in found]
    return warnings


def _check_targets(source: Source) -> None:
    """Check that the examples have at least one target token; without any, the loss would be 0 at every step."""
    stored = source.has_targets if isinstance(source, MaskedCorpus) else None
    if stored or (stored is None and any(_has_targets(examples) for examples in _render_samples(source))):
        return
    rows = "none of its rows" if stored is False else f"none of the {min(TRIED, len(source))} rows tried"
    if not isinstance(source, MaskedCorpus):
        raise FarspanError(f"{rows} has a target token; give a source with targets")
    cure = (
        "make a mask set that hides something"
        if source.is_stored
        else "choose options that hide something, or a corpus of longer rows"
    )
    raise FarspanError(f"{source.described}: {rows} has a target token, so nothing can be learnt; {cure}")


def check_lengths(source: Source, data: DataConfig, section: str, rows: int | None = None) -> Iterator[str]:
    """Check that every draw of every row fits, and yield warnings.

    Stored masks are not checked: their recorded lengths were compared when the mask set was opened.
    """
    if isinstance(source, MaskedCorpus) and source.is_stored and not source.adjusted and source.chosen is None:
        return
    if not isinstance(source, MaskedCorpus | PairedSource):
        return
    if source.cached:
        yield (
            f"{source.described} is read from a remote store step by step; a row whose example is longer than "
            "source_length or target_length ends the run at its step"
        )
        return
    longest = source.longest(rows)
    if longest is None:
        yield (
            f"{source.described} does not say how long its examples may become (method "
            f"`{'longest' if isinstance(source, MaskedCorpus) else 'lengths'}`); one that is longer than source_length "
            "or target_length ends the run at its step"
        )
        return
    for side in ("source", "target"):
        most, limit = getattr(longest, side), getattr(data, f"{side}_length")
        if most > limit:
            raise FarspanError(_too_long(source, data, section, longest, side))


def _cuts(source: PairedSource, data: DataConfig, section: str, rows: int | None) -> Iterator[str]:
    """Warn of samples that a task cuts."""
    cuts = source.cuts(rows)
    if cuts.query or cuts.documents or cuts.target:
        place = _task_options(data, section)
        yield (
            f"{source.described}: {cuts}; {place}.source_length, target_length and query_length limit them, "
            "`farspan stats` has the distribution of lengths"
        )


def _task_options(data: DataConfig, section: str) -> str:
    """Key of a task's options in the recipe."""
    return "task.options" if data.mixture else f"{_configured(section)}.task.options"


def _configured(section: str) -> str:
    """Section with the task and the widths; evaluation uses those of the training data."""
    return "data" if section == "evaluation" else section


def _too_long(source: MaskedCorpus | PairedSource, data: DataConfig, section: str, longest: Longest, side: str) -> str:
    most, row = getattr(longest, side), getattr(longest, f"{side}_row")
    limit, multiple = getattr(data, f"{side}_length"), getattr(data, f"{side}_multiple")
    cures = [
        f"set {_configured(section)}.{side}_length to {-(-most // multiple) * multiple} (and the model's positions)"
    ]
    if isinstance(source, PairedSource):
        place = _task_options(data, section)
        if f"{side}_length" in source.task.options:
            cures.append(f"{place}.{side}_length to {limit}, which cuts it")
    elif side == "target":
        options = "masks_options" if source.is_stored else "objective.options"
        place = options if data.mixture else f"{section}.{options}"
        names, adjustable = source.objective.options, getattr(source.objective, "adjustable", ())
        if "target_length" in names and (not source.is_stored or "target_length" in adjustable):
            fit = f" with {place}.fit=reduce" if "fit" in names else ""
            cures.append(f"{place}.target_length to {limit}{fit}, to hide less")
    else:
        cures.append("give a corpus of shorter rows")
    return (
        f"{source.described} may give {source.origin(row)} a {side} of {most} positions, "
        f"{_configured(section)}.{side}_length is {limit}; {', or '.join(cures)}"
    )


def _check_globals(source: Source, data: DataConfig, pattern: Pattern) -> Iterator[str]:
    """Check that a pattern with global attention gets global positions; without any, it is a sliding window only."""
    if not pattern.takes_global_positions or data.global_positions == "none":
        return
    if any(
        examples.global_positions is not None and examples.global_positions.any()
        for examples in _render_samples(source)
    ):
        return
    described = f"{source.described} makes" if isinstance(source, MaskedCorpus | PairedSource) else "the examples make"
    again = "make the mask set with" if isinstance(source, MaskedCorpus) and source.is_stored else "give the objective"
    rules = "bos (LED), separators (PRIMERA) or masked (CDLM)"
    if isinstance(source, PairedSource):
        again, rules = "give the task", "bos (LED), query or separators (PRIMERA)"
    said = (
        f"{described} no position global, so that encoder attention {pattern.pattern!r} is limited to its window; "
        f"{again} global_attention={rules}, or set data.global_positions to none if this is intended"
    )
    if data.global_positions == "required":
        raise FarspanError(said)
    yield said


def _render_samples(source: Source) -> Iterator[Examples]:
    """Yield the examples of a few rows spread over the source, then of more."""
    for count in (4, TRIED):
        rows = spread_rows(source, count)
        yield source.examples(rows)
        if len(rows) < count:
            return


def spread_rows(source: Source, count: int) -> np.ndarray:
    """At most ``count`` rows spread over a source; rows of the first shard only, if shards are fetched on demand."""
    size = len(source)
    if isinstance(source, ShardedSource) and source.cached:
        size = next(rows for rows in source.shard_rows if rows)
    return np.unique(np.linspace(0, size - 1, count).astype(np.int64))


def _has_targets(examples: Examples) -> bool:
    return bool((examples.target_lengths > 0).any() if examples.labels is None else (examples.labels != IGNORED).any())
