"""Outputs of the tutorial: ``make tutorial`` runs ``docs/tutorial.ipynb`` in a kernel and stores what its cells print.

Progress bars are left out, and ``…`` replaces the speeds and times of training. ``tests/farspan/integration/
test_tutorial.py`` runs the cells with hardly any training, and compares the outputs that no training decides.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

NOTEBOOK = Path(__file__).with_name("tutorial.ipynb")
_TIMEOUT = 1800  # seconds for a cell
_BAR = "━━"  # in every progress bar
_COLOURS = re.compile(r"\x1b\[[\d;]*m")
_SILENCE = re.compile(  # what a busy machine makes a command say
    r"^(prepares the run|at work on the next update|compiles loops.*|.*: (loads libraries|plans the job))\n",
    re.MULTILINE,
)
_MEASURED = re.compile(r"^(step \d+/\d+  loss \S+  lr \S+)  .*", re.MULTILINE)  # a line of training: speeds, times

Output = dict[str, Any]


def main() -> None:
    """Run the notebook in an empty folder, and store the outputs in it."""
    text = NOTEBOOK.read_text("utf-8")
    notebook = json.loads(text)
    for cell, ran in zip(notebook["cells"], _run(text), strict=True):
        if cell["cell_type"] == "code":
            cell["outputs"] = stored(ran["outputs"])
            cell["execution_count"] = ran["execution_count"]
    NOTEBOOK.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", "utf-8")


def _run(notebook: str) -> list[Any]:
    """Run the cells of a notebook's JSON in a kernel, and return them with their outputs."""
    import nbclient
    import nbformat

    with tempfile.TemporaryDirectory() as folder:
        client = nbclient.NotebookClient(
            nbformat.reads(notebook, as_version=4),
            timeout=_TIMEOUT,
            record_timing=False,
            resources={"metadata": {"path": folder}},
        )
        return list(client.execute(env={**os.environ, "PYTHONPATH": str(NOTEBOOK.parents[1])}).cells)


def stored(outputs: Iterable[Mapping[str, Any]]) -> list[Output]:
    """Choose what is stored of a cell's outputs.

    Lines without colour become text, and neighbouring texts one output, whatever wrote them; coloured ones and pictures
    stay as they are.

    Raises:
        ValueError: a warning or error among them.
    """
    kept: list[Output] = []
    for output in outputs:
        data = output.get("data", {})
        text = _SILENCE.sub("", joined(output.get("text", data.get("text/plain", ""))))
        if _BAR in text or not (text or "image/png" in data or output["output_type"] == "error"):
            continue
        if output.get("name") == "stderr" or output["output_type"] == "error":
            raise ValueError(f"the cell says {text or output.get('evalue')!r}; mend it, then run it again")
        if "image/png" in data or _COLOURS.search(text):
            kept.append({"output_type": "display_data", "metadata": dict(output["metadata"]), "data": _data(data)})
        elif kept and kept[-1]["output_type"] == "stream":
            kept[-1]["text"] += without_measures(text).splitlines(keepends=True)
        else:
            lines = without_measures(text).splitlines(keepends=True)
            kept.append({"output_type": "stream", "name": "stdout", "text": lines})
    return kept


def _data(data: Mapping[str, Any]) -> dict[str, Any]:
    """The contents of an output in the form that notebooks are written in: text as a list of lines, without colours."""
    plain = _COLOURS.sub("", joined(data["text/plain"])).splitlines(keepends=True)
    if "image/png" in data:
        return {"image/png": data["image/png"], "text/plain": plain}
    return {"text/html": joined(data["text/html"]).splitlines(keepends=True), "text/plain": plain}


def without_measures(text: str) -> str:
    """Replace the speeds and times in lines of training by ``…``."""
    return _MEASURED.sub(r"\1  …", text)


def plain_text(outputs: Iterable[Mapping[str, Any]]) -> str:
    """What the stored outputs of a cell say without colour, as a program prints it."""
    return "".join(joined(output.get("text") or output["data"]["text/plain"]).rstrip("\n") + "\n" for output in outputs)


def joined(text: str | Iterable[str]) -> str:
    """The text of an output, which notebooks hold as a string or as lines."""
    return text if isinstance(text, str) else "".join(text)


if __name__ == "__main__":
    main()
