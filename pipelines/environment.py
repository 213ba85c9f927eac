"""Check that no other distribution installs packages under farspan's import names, which are plain words.

Imports nothing of farspan, because any of these packages may belong to another distribution, and not
``importlib.metadata``, because its import takes longer than the check.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable
from contextlib import suppress

PACKAGES = ("corpora", "objectives", "trainer", "pipelines")
_IN_RECORD = re.compile(rf"^({'|'.join(PACKAGES)})(?:/|\.py,)", re.MULTILINE)


def foreign_owners(folders: Iterable[str] | None = None) -> dict[str, str]:
    """Map import names of farspan to other distributions that also install them; empty in a sound environment.

    Args:
        folders: folders of installed distributions; None for ``sys.path``.
    """
    owners: dict[str, str] = {}
    for folder in sys.path if folders is None else folders:
        with suppress(OSError):
            for entry in os.listdir(folder):
                name, _, kind = entry.rpartition(".")
                if kind in ("dist-info", "egg-info"):
                    name = name.partition("-")[0]  # of NAME-VERSION
                    if name != "farspan":
                        owners |= dict.fromkeys(_packages(os.path.join(folder, entry)), name)
    return owners


def _packages(metadata: str) -> list[str]:
    """Names of ``PACKAGES`` that the distribution with this metadata folder installs."""
    top = _read(metadata, "top_level.txt")
    names = _IN_RECORD.findall(_read(metadata, "RECORD") or "") if top is None else top.split()
    return [package for package in PACKAGES if package in names]


def _read(folder: str, name: str) -> str | None:
    try:
        with open(os.path.join(folder, name), encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return None


def require_own_environment() -> None:
    """End the program with an error message if another distribution owns an import name of farspan.

    Raises:
        SystemExit: naming the distribution.
    """
    owners = foreign_owners()
    if owners:
        what = ", ".join(f"{name!r} is also a package of {owner}" for name, owner in sorted(owners.items()))
        raise SystemExit(f"farspan: {what}; install farspan into a separate environment, or uninstall the other")
