"""Mixtures: the number of tokens that a corpus takes from each source.

All shares are exact fractions, so that shards can be built independently: each makes the same number of passes over its
own part of a source (``corpora.packing.windows.take``).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from corpora.errors import FarspanError

ON_CAP = ("stop", "redistribute")
WEIGHTS_SUM = 1e-6  # tolerated distance of the weights' sum from 1


@dataclass(frozen=True)
class Source:
    """A source of a mixture, and the request for it."""

    available: int  # tokens that one pass over the source writes; a token in several windows counts once for each
    weight: float | None = None  # requested share of the mixture; None for all sources of a mixture by temperature
    epochs: float = 1.0  # maximum number of passes (the cap)
    size: int | None = None  # tokens that count for a weight by size, if ``available`` lacks short documents


@dataclass(frozen=True)
class Share:
    """The share that a mixture takes from a source."""

    available: int  # tokens of one pass over the source
    weight: Fraction  # requested share of the mixture, exact; all add up to 1
    tokens: int  # tokens taken
    capped: bool  # True if the cap determined ``tokens``

    @property
    def epochs(self) -> Fraction:
        """Passes over the source, exact."""
        return Fraction(self.tokens, self.available)


@dataclass(frozen=True)
class Mixture:
    """Shares by source, sorted by name, and the reason if they differ from the request (else empty)."""

    shares: Mapping[str, Share]
    reason: str = ""

    @property
    def tokens(self) -> int:
        return sum(share.tokens for share in self.shares.values())


def mix(
    sources: Mapping[str, Source], tokens: int | None = None, temperature: float | None = None, on_cap: str = "stop"
) -> Mixture:
    """Divide a budget of ``tokens``, or else as many as the caps allow at the requested weights, among ``sources``.

    Sources without weights get weights proportional to ``available ** (1 / temperature)``: 1 (the default) is by size,
    and infinity gives equal weights. Source: Raffel et al. 2020 (T5), section 3.5.2, whose limit on a task's size is
    the cap here. With ``on_cap`` ``stop``, the whole mixture ends when the first source reaches its cap, which keeps
    the proportions; ``redistribute`` gives the missing tokens to the other sources.
    """
    wanted = {name: source.weight for name, source in sources.items()}
    check_request(wanted, {name: source.epochs for name, source in sources.items()}, tokens, temperature, on_cap)
    for name, source in sources.items():
        if source.available < 1:
            raise FarspanError(f"source {name!r} has no token; leave it out, or make the documents from more input")
    sources = dict(sorted(sources.items()))
    weights = _weights(sources, temperature)
    caps = {name: _decimal(source.epochs) * source.available for name, source in sources.items()}
    first = min(sources, key=lambda name: caps[name] / weights[name])
    most = caps[first] / weights[first]
    if tokens is None or (on_cap == "stop" and tokens > most):
        exact = {name: most * weight for name, weight in weights.items()}
        capped = {first}
    else:
        exact, capped = _redistribute(tokens, weights, caps)
    shares = {
        name: Share(source.available, weights[name], math.floor(exact[name]), name in capped)
        for name, source in sources.items()
    }
    for name, share in shares.items():
        if share.tokens < 1:
            raise FarspanError(
                f"source {name!r}: its share {float(share.weight):.3g} of the mixture is less than one token; "
                "raise the budget, its weight, or the epochs of the source that ends the mixture"
            )
    return Mixture(shares, _reason(sources, shares, tokens, on_cap))


def check_request(
    weights: Mapping[str, float | None],
    epochs: Mapping[str, float],
    tokens: int | None,
    temperature: float | None,
    on_cap: str,
) -> None:
    """Check a request for a mixture as far as possible without the sizes of the sources."""
    if not epochs:
        raise FarspanError("the mixture has no source; name at least one")
    if on_cap not in ON_CAP:
        raise FarspanError(f"on_cap {on_cap!r}: choose one of {', '.join(ON_CAP)}")
    if tokens is not None and tokens < 1:
        raise FarspanError(f"tokens {tokens}: give a positive budget, or none for as many as the caps allow")
    if on_cap == "redistribute" and tokens is None:
        raise FarspanError(
            'on_cap "redistribute" without a budget would read every source up to its cap, whatever the weights; '
            'give tokens, or on_cap = "stop"'
        )
    for name, cap in epochs.items():
        if not (math.isfinite(cap) and cap > 0):
            raise FarspanError(f"source {name!r}: epochs {cap}: the cap must be a positive, finite number")
    if temperature is not None and not temperature > 0:
        raise FarspanError(f"temperature {temperature}: must be above 0; 1 is by size, inf the same for all")
    stated = {name: weight for name, weight in weights.items() if weight is not None}
    if not stated:
        return
    if temperature is not None:
        raise FarspanError(f"temperature {temperature} and weights (of {', '.join(stated)}): give one or the other")
    missing = [name for name in weights if name not in stated]
    if missing:
        raise FarspanError(f"source {missing[0]!r} has no weight, others have; give it one, or leave all out")
    for name, weight in stated.items():
        if not (math.isfinite(weight) and weight > 0):
            raise FarspanError(f"source {name!r}: weight {weight}: must be above 0; leave a source out to skip it")
    total = math.fsum(stated.values())
    if abs(total - 1) > WEIGHTS_SUM:
        cure = ", ".join(f"{name} = {weight / total:.6g}" for name, weight in stated.items())
        raise FarspanError(f"the weights sum to {total:.6g}, not to 1; normalised they are {cure}")


def _weights(sources: Mapping[str, Source], temperature: float | None) -> dict[str, Fraction]:
    sizes = {name: source.weight for name, source in sources.items() if source.weight is not None}
    if not sizes:
        temperature = 1.0 if temperature is None else temperature
        counts = {name: source.size or source.available for name, source in sources.items()}
        largest = max(counts.values())
        sizes = {
            # exact if possible; otherwise relative to the largest, so that no temperature overflows
            name: count if temperature == 1 else (count / largest) ** (1 / temperature)
            for name, count in counts.items()
        }
        if not min(sizes.values()) > 0:
            raise FarspanError(f"temperature {temperature}: is so low that sources get nothing; raise it")
    exact = {name: _decimal(size) for name, size in sizes.items()}
    whole = sum(exact.values())
    return {name: size / whole for name, size in exact.items()}


def _decimal(number: float) -> Fraction:
    """Convert a number as written in decimal: 0.6 is exactly three fifths."""
    return Fraction(repr(number))


def _redistribute(
    tokens: int, weights: Mapping[str, Fraction], caps: Mapping[str, Fraction]
) -> tuple[dict[str, Fraction], set[str]]:
    """Give tokens above a cap to the other sources by weight; return the tokens of each, and the sources at caps."""
    exact = {name: tokens * weight for name, weight in weights.items()}
    capped: set[str] = set()
    while over := {name for name, wanted in exact.items() if wanted > caps[name]}:
        capped |= over
        open_weight = sum((weight for name, weight in weights.items() if name not in capped), Fraction(0))
        left = tokens - sum(caps[name] for name in capped)
        exact = {
            name: caps[name] if name in capped else left * weight / open_weight for name, weight in weights.items()
        }
    return exact, capped


def _reason(sources: Mapping[str, Source], shares: Mapping[str, Share], tokens: int | None, on_cap: str) -> str:
    """Explain how the mixture differs from the request; empty if it does not."""
    capped = [name for name, share in shares.items() if share.capped]
    if tokens is None or not capped:
        return ""
    names = ", ".join(f"{name!r} (weight {float(shares[name].weight):.4g})" for name in capped)
    caps = ", ".join(f"{sources[name].epochs:g}" for name in capped)
    taken = sum(share.tokens for share in shares.values())
    if on_cap == "stop":
        return (
            f"{taken:,} of {tokens:,} tokens: {names} has been read {caps} times by then, its cap, and the "
            'proportions are kept; raise its epochs, lower its weight, or set on_cap = "redistribute"'
        )
    others = "all sources are" if len(capped) == len(shares) else f"{names} is" if len(capped) == 1 else f"{names} are"
    text = f"{others} at the cap of {caps} epochs"
    if len(capped) < len(shares):
        return f"{text}; the other sources make up for it, so that the proportions are not those asked for"
    return f"{taken:,} of {tokens:,} tokens: {text}; raise the epochs or lower the budget"
