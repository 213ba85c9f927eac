"""The packages that a process imports: none of another distribution under farspan's names, and Arrow without pandas.

Imports nothing of farspan, whose names are plain words and may belong to another distribution, and not
``importlib.metadata``, because its import takes longer than the check.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

PACKAGES = ("corpora", "objectives", "trainer", "pipelines")
_IN_RECORD = re.compile(rf"^({'|'.join(PACKAGES)})(?:/|\.py,)", re.MULTILINE)


def foreign_owners(folders: Iterable[str] | None = None) -> dict[str, str]:
    """Map import names of farspan to other distributions in folders (``sys.path``) that also install them."""
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
    """End the program with an error message if another distribution owns an import name of farspan."""
    owners = foreign_owners()
    if owners:
        what = ", ".join(f"{name!r} is also a package of {owner}" for name, owner in sorted(owners.items()))
        raise SystemExit(f"farspan: {what}; install farspan into a separate environment, or uninstall the other")


def leave_pandas_out() -> None:
    """Keep Arrow from importing pandas before anything else does, as that takes a third of a second.

    Arrow imports pandas once, to tell whether an object is a Series. Here that import fails. When other code imports
    pandas, Arrow looks for it again, so its conversions work as ever.
    """
    if "pandas" in sys.modules:
        return
    from pyarrow.lib import _pandas_api

    sys.meta_path.insert(0, finder := _PandasLater(_pandas_api))
    _pandas_api.is_series(None)
    finder.hidden = False


class _PandasLater:
    """Hides pandas while ``hidden``, and makes Arrow look again when it is imported later."""

    def __init__(self, api: Any) -> None:
        self._api, self.hidden = api, True

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name != "pandas":
            return
        if self.hidden:
            raise ModuleNotFoundError("hidden from Arrow", name=name)
        sys.meta_path.remove(self)
        self._api.__init__()
