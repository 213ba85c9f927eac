"""Rows and runs as ``farspan view`` shows them, in a notebook's cell."""

from __future__ import annotations

import os
from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import Any

from corpora.errors import from_extra
from corpora.settings import make
from corpora.storage.sharded_rows import ShardedRows
from pipelines.view.command import open_workspace, render_saved
from pipelines.view.options import View
from pipelines.view.workspace import spans_folders

_HEIGHT = 480  # pixels; the page scrolls inside


class Cell:
    """A page for a notebook's cell, which displays it as the cell's value."""

    def __init__(self, html: str, message: str) -> None:
        """
        Args:
            html: the whole page.
            message: its description.
        """
        self.html, self._message = html, message

    def __repr__(self) -> str:
        return f"Cell({self._message})"

    def _repr_html_(self) -> str:
        style = "width: 100%; border: 1px solid #8884"
        return (
            f'<iframe sandbox="allow-scripts" height="{_HEIGHT}" style="{style}" srcdoc="{escape(self.html)}"></iframe>'
        )

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the page as one self-contained file."""
        Path(path).write_text(self.html, "utf-8")
        return Path(path)


def view(
    *artefact: str | os.PathLike[str], row: int = 0, count: int = 1, options: Mapping[str, Any] | None = None
) -> Cell:
    """Show rows of an artefact, or the curves of runs, as ``farspan view`` does.

    Args:
        artefact: folders, as for the command: a corpus with its mask sets, predictions of several systems, runs.
        row, count: first row and number of rows; runs have none.
        options: other options of the command by their Python names: ``{"objective": ["t5"], "layout": "stream"}``.

    Raises:
        FarspanError: as the command does.
    """
    with from_extra("view", "viewing artefacts"):
        import jinja2  # noqa: F401
    values = {"artefact": [os.fspath(one) for one in artefact], "save": "cell.html", **(options or {})}
    chosen = make(View, values, "{}".format)
    if not spans_folders(chosen):
        chosen = make(View, {**values, "row": row, "count": count}, "{}".format)
    return Cell(*render_saved(chosen, open_workspace(chosen)))


def show_rows(rows: ShardedRows) -> str | None:
    """Return the first row of an opened artefact as HTML; None without the extra ``view`` or without a row."""
    try:
        import jinja2  # noqa: F401
    except ImportError:
        return None
    return view(rows.folder)._repr_html_() + f"<pre>{escape(repr(rows))}</pre>" if len(rows) else None
