"""``farspan view``: serve pages about artefacts, or save some rows as one file."""

from __future__ import annotations

import secrets
import socket
from collections.abc import Sequence
from contextlib import suppress

from corpora.errors import FarspanError, from_extra
from corpora.printing import format_count
from corpora.reporting import result
from corpora.storage.files import write_bytes
from pipelines.pages.page import PageOptions, Subject
from pipelines.pages.subjects import open_subjects
from pipelines.view.options import View

_SAVED = 10  # rows, unless --count is given
_HOST = "127.0.0.1"  # not reachable from other machines


def command(options: View) -> None:
    """Run ``farspan view``."""
    with from_extra("view", "viewing artefacts"):
        import jinja2  # noqa: F401 (fails before artefacts are opened)
    subjects = open_artefacts(options)
    if options.save:
        rows = save(options, subjects)
        message = f"{options.save}: {format_count(rows, 'row')} of {subjects[0].folder}"
        result(message, output=options.save, rows=rows)
    else:
        serve(options, subjects)


def open_artefacts(options: View) -> list[Subject]:
    """Open what the options name, and check that it has the rows that they name."""
    subjects = open_subjects(options)
    for subject in subjects:
        if not len(subject):
            raise FarspanError(f"{subject.folder}: has no row; there is nothing to view")
        options.check_rows(subject.folder, len(subject))
    return subjects


def serve(options: View, subjects: Sequence[Subject]) -> None:
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
            build_app(subjects, token, first_row(options)),
            log_level="error",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            lifespan="off",
            ws="none",
        )
        with suppress(KeyboardInterrupt):  # the normal end
            uvicorn.Server(config).run(sockets=[listening])


def first_row(options: View) -> int:
    """The row that is shown first."""
    return options.chosen_rows[0] if options.chosen_rows else options.row


def save(options: View, subjects: Sequence[Subject]) -> int:
    """Write rows into one self-contained file, and return their number."""
    from pipelines.view.markup import build_saved_page

    assert options.save
    if not options.save.endswith((".html", ".htm")):
        raise FarspanError(f"--save {options.save}: is written as HTML; give FILE.html")
    if len(subjects) > 1:
        names = ", ".join(subject.folder for subject in subjects)
        raise FarspanError(f"--save {options.save}: holds rows of one artefact, not of {names}; name one")
    (subject,) = subjects
    rows = options.chosen_rows or range(options.row, min(options.row + (options.count or _SAVED), len(subject)))
    pages = [subject.page(row, PageOptions()) for row in rows]
    text = build_saved_page(subject.name, pages, summary=subject.summary)
    write_bytes(options.save, text.encode())
    return len(pages)
