"""A package of someone else, and how a process comes to see it as installed without an installer or a network."""

from __future__ import annotations

import tomllib
from pathlib import Path

FARSPAN_LEAD = Path(__file__).parent / "farspan_lead"


def install_farspan_lead(folder: Path) -> list[str]:
    """Write the metadata that installing ``farspan-lead`` would leave, made from its ``pyproject.toml``, to ``folder``.

    Returns:
        What to put in front of ``PYTHONPATH`` (or ``sys.path``): the module's folder and ``folder``.
    """
    project = tomllib.loads((FARSPAN_LEAD / "pyproject.toml").read_text())["project"]
    metadata = folder / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    )
    groups = (
        f"[{group}]\n" + "".join(f"{name} = {target}\n" for name, target in entries.items())
        for group, entries in project["entry-points"].items()
    )
    (metadata / "entry_points.txt").write_text("\n".join(groups))
    return [str(FARSPAN_LEAD), str(folder)]
