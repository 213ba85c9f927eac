"""A package of someone else, and how a process comes to see it as installed without an installer or a network."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path

FARSPAN_LEAD = Path(__file__).parent / "farspan_lead"


def install_farspan_lead(folder: Path) -> list[str]:
    """Write the metadata that installing ``farspan-lead`` would leave, made from its ``pyproject.toml``, to ``folder``.

    Returns:
        What to put in front of ``PYTHONPATH`` (or ``sys.path``): the module's folder and ``folder``.
    """
    project = tomllib.loads((FARSPAN_LEAD / "pyproject.toml").read_text())["project"]
    (entries,) = project["entry-points"].values()
    install_objectives(folder, project["name"], entries, project["version"])
    return [str(FARSPAN_LEAD), str(folder)]


def install_objectives(folder: Path, package: str, entries: Mapping[str, str], version: str = "1.0") -> None:
    """Write to ``folder`` the metadata of a package with objectives: name -> entry point."""
    metadata = folder / f"{package.replace('-', '_')}-{version}.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n")
    lines = [f"{name} = {target}\n" for name, target in entries.items()]
    (metadata / "entry_points.txt").write_text("[farspan.objectives]\n" + "".join(lines))
