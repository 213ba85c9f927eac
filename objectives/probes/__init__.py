"""Probes: questions about long texts made from any documents, to measure what a model finds at which length."""

from __future__ import annotations

from collections.abc import Mapping

from corpora.errors import FarspanError, nearest
from objectives.probes.babilong import BABILONG
from objectives.probes.example import Probe
from objectives.probes.ruler import RULER

PROBES: Mapping[str, Probe] = {
    **{f"ruler:{name}": probe for name, probe in RULER.items()},
    **{f"babilong:{name}": probe for name, probe in BABILONG.items()},
}


def load_probe(name: str) -> Probe:
    """Return a probe by its name.

    Raises:
        FarspanError: no probe has that name; lists all.
    """
    if name not in PROBES:
        raise FarspanError(f"no probe is called {name!r}{nearest(name, PROBES)}; probes: {', '.join(PROBES)}")
    return PROBES[name]
