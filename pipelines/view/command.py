"""``farspan view``: serve pages about artefacts, save some rows as one file, or show them in a notebook."""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Mapping
from contextlib import suppress
from html import escape
from pathlib import Path
from typing import Any

from corpora.errors import FarspanError, from_extra
from corpora.printing import format_count
from corpora.reporting import result
from corpora.settings import make
from corpora.storage.files import write_bytes
from corpora.storage.sharded_rows import ShardedRows
from pipelines.pages.options import View
from pipelines.pages.page import PageOptions, Subject
from pipelines.pages.subjects import open_subjects
from pipelines.view.workspace import Workspace, spans_folders

_SAVED = 10  # rows, unless --count is given
_HOST = "127.0.0.1"  # not reachable from other machines


def command(options: View) -> None:
    """Run ``farspan view``."""
    with from_extra("view", "viewing artefacts"):
        import jinja2  # noqa: F401 (fails before artefacts are opened)
    workspace = open_workspace(options)
    if options.save:
        text, message = render_saved(options, workspace)
        write_bytes(options.save, text.encode())
        result(f"{options.save}: {message}", output=options.save)
    else:
        serve(options, workspace)


def open_workspace(options: View) -> Workspace:
    """Find what lies in the folders that the options name, or open the artefacts."""
    if spans_folders(options):
        for name in ("masks", "corpus", "row", "rows", "count", "rank"):
            if getattr(options, name):
                raise FarspanError(f"--{name}: {', '.join(options.artefact)} is a folder or run; name one artefact")
        return Workspace(options)
    return Workspace.of(open_artefacts(options))


def open_artefacts(options: View) -> list[Subject]:
    """Open what the options name, and check that it has the rows that they name."""
    subjects = open_subjects(options)
    for subject in subjects:
        if not len(subject):
            raise FarspanError(f"{subject.folder}: has no row; there is nothing to view")
        options.check_rows(subject.folder, len(subject))
    return subjects


def serve(options: View, workspace: Workspace) -> None:
    """Serve pages until Ctrl-C."""
    from pipelines.view.app import build_app

    with from_extra("view", "viewing artefacts"):
        import uvicorn
    token = secrets.token_urlsafe(16)
    # Without the protocol's name, asyncio leaves Nagle's algorithm on, which delays a page by 40 ms.
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((_HOST, options.port))
            listening.listen()
        except OSError as error:
            raise FarspanError(f"--port {options.port}: {error.strerror}; give another, or 0 for a free one") from error
        address = f"http://{_HOST}:{listening.getsockname()[1]}/{token}/"
        if options.rows:
            address += f"?rows={options.rows}"
        result(f"{address}\nopen it in a browser on this machine; Ctrl-C ends it", address=address)
        config = uvicorn.Config(
            build_app(workspace, token, options.chosen_rows[0] if options.chosen_rows else options.row or None),
            log_level="error",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            lifespan="off",
            ws="none",
        )
        with suppress(KeyboardInterrupt):  # the normal end
            uvicorn.Server(config).run(sockets=[listening])


def render_saved(options: View, workspace: Workspace) -> tuple[str, str]:
    """Render runs, or rows of an artefact, as one self-contained page, and describe it."""
    from pipelines.view.markup import build_saved_page
    from pipelines.view.run_pages import describe_runs

    assert options.save
    if not options.save.endswith((".html", ".htm")):
        raise FarspanError(f"--save {options.save}: is written as HTML; give FILE.html")
    entries = list(workspace.entries.values())
    if all(entry.kind == "run" for entry in entries):
        values = describe_runs(workspace, ())
        return build_saved_page("runs.html", title="runs", live=False, **values), format_count(len(entries), "run")
    if len(entries) > 1:
        names = ", ".join(entry.folder for entry in entries)
        raise FarspanError(f"{names}: a page in one file holds rows of one artefact, or runs; name one")
    subject = workspace.subject(entries[0].name)
    rows = options.chosen_rows or range(options.row, min(options.row + (options.count or _SAVED), len(subject)))
    pages = [subject.page(row, PageOptions()) for row in rows]
    text = build_saved_page("saved.html", title=subject.name, summary=subject.summary, pages=pages)
    return text, f"{format_count(len(pages), 'row')} of {subject.folder}"


_HEIGHT = 480  # pixels; the page scrolls inside


class Cell:
    """A page for a notebook's cell, which displays it as the cell's value."""

    def __init__(self, html: str, message: str) -> None:
        """Keep a whole page as ``html``, and its description."""
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
