"""Check that no other distribution installs packages under farspan's import names, which are plain words.

Imports nothing of farspan, because any of these packages may belong to another distribution.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from importlib.metadata import Distribution, distributions

ROOMS = ("corpora", "objectives", "trainer", "pipelines")
_IN_RECORD = re.compile(rf"^({'|'.join(ROOMS)})(?:/|\.py,)", re.MULTILINE)


def foreign_owners(installed: Iterable[Distribution] | None = None) -> dict[str, str]:
    """Map import names of farspan to other distributions that also install them; empty in a sound environment.

    Args:
        installed: distributions to look through; None for all on ``sys.path``.
    """
    owners: dict[str, str] = {}
    for distribution in distributions() if installed is None else installed:
        top = distribution.read_text("top_level.txt")
        names = _IN_RECORD.findall(distribution.read_text("RECORD") or "") if top is None else top.split()
        found = [room for room in ROOMS if room in names]
        if (
            found and (name := distribution.metadata["Name"]) != "farspan"
        ):  # parsed for few only, because parsing is slow
            owners |= dict.fromkeys(found, name)
    return owners


def require_own_environment() -> None:
    """End the program with an error message if another distribution owns an import name of farspan.

    Raises:
        SystemExit: naming the distribution.
    """
    owners = foreign_owners()
    if owners:
        what = ", ".join(f"{name!r} is also a package of {owner}" for name, owner in sorted(owners.items()))
        raise SystemExit(f"farspan: {what}; install farspan into a separate environment, or uninstall the other")
