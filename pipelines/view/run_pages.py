"""What the page of runs shows: facts, curves, spikes, and the texts of the last validation."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pipelines.pages.shared_words import nearest_reference, shared_words
from pipelines.runs import panels
from pipelines.runs.table import run_facts
from pipelines.view.workspace import Workspace
from trainer.checkpoint.run_files import VALIDATION, DamagedError, read_sealed

_COMPARED = 20_000  # maximum characters of a text whose words are compared


def describe_runs(workspace: Workspace, names: Sequence[str]) -> dict[str, Any]:
    """Return the values of the template of runs; ``seen`` changes with the runs' logs."""
    runs, logs = [], {}
    for number, (name, follower) in enumerate(workspace.runs(names).items()):
        logs[number] = follower.read()
        facts = run_facts(logs[number], name)
        entry = workspace.entries[name]
        validation = _validation(Path(entry.folder))
        runs.append(
            {
                **facts,
                "number": number,
                "name": name,
                "title": entry.title,
                "spikes": logs[number].spikes,
                "validation": validation,
            }
        )
    seen = ".".join(
        f"{len(logs[run['number']].records)}-{run['state']}-{(run['validation'] or {}).get('step')}" for run in runs
    )
    sizes = {name: getattr(panels, name) for name in ("WIDTH", "HEIGHT", "LEFT", "TOP", "BOTTOM")}
    return {"runs": runs, "panels": panels.draw_panels(logs), "seen": seen, **sizes}


def _validation(folder: Path) -> dict[str, Any] | None:
    """Texts of the last validation, with the words marked that each shares with its nearest reference."""
    try:
        values = read_sealed(folder / VALIDATION)
    except DamagedError:
        return None
    for text in values["texts"]:
        references = [reference[:_COMPARED] for reference in text["references"]]
        nearest = nearest_reference(text["text"][:_COMPARED], references)
        text["reference"] = references[nearest] if nearest >= 0 else ""
        text["pieces"] = shared_words(text["text"][:_COMPARED], text["reference"])
    return values
