"""``farspan runs``: a table of the training runs in a folder."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from corpora.errors import FarspanError
from corpora.printing import printable
from corpora.reporting import print_table
from pipelines.engine.progress import short
from pipelines.runs.logs import HELD_OUT, Logs, read_logs, records_in
from pipelines.runs.options import Runs
from trainer.checkpoint.run_files import METRICS, SUMMARY

_RATES = 20  # number of latest updates over which the speed is averaged


def command(options: Runs) -> None:
    """Run ``farspan runs``."""
    facts = runs(options.folder)
    if options.print_rows("runs", f"runs in {options.folder}", facts):
        return
    table = Table()
    for name in ("run", "recipe", "step", "loss", "held-out", "tokens/s", "state", "started"):
        table.add_column(name, justify="right" if name in ("step", "loss", "held-out", "tokens/s") else "left")
    for row in facts:
        steps = f"{row['step']:,}" + (f" of {row['steps']:,}" if row["steps"] else "")
        cells = (row["run"], row["recipe"], steps, _loss(row["loss"]), _loss(row["held_out_loss"]))
        speed = "" if row["tokens_per_second"] is None else short(row["tokens_per_second"])
        table.add_row(*(Text(printable(cell)) for cell in (*cells, speed, row["state"], row["started"][:16])))
    print_table(table)


def runs(folder: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """Return facts about each run below a folder, by name: ``run``, ``recipe``, ``step``, ``steps``, ``loss``, ..."""
    top = Path(folder)
    places = sorted(path.parent for path in top.rglob(METRICS) if any(records_in(path)))
    if not places:
        raise FarspanError(f"{top}: holds no run; give a folder with runs of `farspan train`")
    return [run_facts(read_logs(place), str(place.relative_to(top))) for place in places]


def run_facts(logs: Logs, name: str) -> dict[str, Any]:
    """Facts about a run, as in ``runs``."""
    last: dict[str, Any] = logs.starts[-1] if logs.starts else {}  # type: ignore[assignment]
    step = max((int(line["step"]) for line in logs.records), default=0)
    _, losses = logs.curve("loss")
    _, rates = logs.curve("source_tokens_per_second")
    measured = {name: values[-1] for name in logs.held_out if len(values := logs.curve(name)[1])}
    held_out = [measured[HELD_OUT]] if HELD_OUT in measured else list(measured.values())
    return {
        "run": logs.folder.name if name == "." else name,
        "recipe": str(last.get("recipe", "")),
        "step": step,
        "steps": last.get("steps"),
        "loss": float(losses[-1]) if len(losses) else None,
        "held_out_loss": float(sum(held_out) / len(held_out)) if held_out else None,
        "tokens_per_second": float(rates[-_RATES:].mean()) if len(rates) else None,
        "state": run_state(logs.folder),
        "started": str(logs.starts[0].get("started", "")) if logs.starts else "",
    }


def run_state(folder: Path) -> str:
    """Describe a run as ``running``, ``finished`` if it has its summary, or ``stopped``, the same in every list."""
    if in_use(folder):
        return "running"
    return "finished" if (folder / SUMMARY).is_file() else "stopped"


def in_use(folder: Path) -> bool:
    """True if a process is training the run, on this machine or, if the file system shares locks, on another."""
    try:
        with (folder / "checkpoints" / "run.lock").open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False  # never started, or a file system without locks
    return False


def _loss(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"
