"""The web server of the pages: it only reads, and answers only browsers on this machine that know its token."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import fields
from functools import lru_cache, partial
from typing import Any
from urllib.parse import urlencode

from corpora.errors import FarspanError, from_extra, nearest
from corpora.printing import format_count, row_numbers
from objectives.api.plugins import plugin_errors
from pipelines.pages.catalog import base_name
from pipelines.pages.filters import Filter, search, whole_number
from pipelines.pages.page import MORE, PARTS, PageOptions, Subject
from pipelines.pages.table import SHOWN
from pipelines.view.overview import HEIGHT, WIDTH, draw_graph, read_tables
from pipelines.view.run_pages import describe_runs
from pipelines.view.workspace import Workspace

with from_extra("view", "viewing artefacts"):
    from starlette.applications import Starlette
    from starlette.datastructures import URL
    from starlette.exceptions import HTTPException
    from starlette.middleware import Middleware
    from starlette.middleware.base import BaseHTTPMiddleware, RequestResponseEndpoint
    from starlette.requests import Request
    from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, RedirectResponse, Response
    from starlette.routing import Route

from pipelines.view.markup import asset, pieces_html, query, reasons_by_span, render, token_html

_HOSTS = ("127.0.0.1", "localhost", "[::1]")
_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src data:; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}
_ASSETS = {"view.css": "text/css", "view.js": "text/javascript"}
_STATE = (*(field.name for field in fields(Filter)), "draw", "theme", "tokens", "brackets", "mono", "sort")
"""Parameters that are kept in the address from row to row."""
_MOST = 60  # maximum boxes of a readable graph
_LONGEST = 2_000  # maximum characters of a parameter; longer ones are ignored


def build_app(workspace: Workspace, token: str, first: int | None = None) -> Starlette:
    """Build the application that serves pages of ``workspace`` below ``/TOKEN/``; other requests get status 404.

    The page of a single artefact is that of its row ``first``, or its table for None.
    """
    pages = Pages(workspace, token, first)
    root = "/{token}/"
    routes = [
        Route(root, pages.index),
        Route(root + "static/{name}", pages.static),
        Route(root + "runs/", pages.runs),
        Route(root + "runs/panels", pages.panels),
        Route(root + "{subject}/", pages.table),
        Route(root + "{subject}/seek", pages.seek),
        Route(root + "{subject}/goto", pages.goto),
        Route(root + "{subject}/random", pages.random),
        Route(root + "{subject}/{row}", pages.row),
        Route(root + "{subject}/{row}/block", pages.block),
    ]
    return Starlette(
        routes=[Route(route.path, plugin_errors()(route.endpoint), methods=["GET"]) for route in routes],
        exception_handlers={HTTPException: pages.show_error, FarspanError: pages.show_error},
        middleware=[Middleware(BaseHTTPMiddleware, dispatch=partial(_guard, token.encode()))],
    )


async def _guard(token: bytes, request: Request, answer: RequestResponseEndpoint) -> Response:
    """Refuse requests under another host's name or without the token, and put the headers on every answer."""
    host = request.headers.get("host", "")
    given = "".join(request.scope["path"].split("/")[1:2]).encode("utf-8", "surrogatepass")
    response: Response
    if host.rsplit(":", 1)[0] not in _HOSTS and host not in _HOSTS:  # as after DNS rebinding
        response = PlainTextResponse("another host's name\n", 421)
    elif not secrets.compare_digest(given, token):
        response = PlainTextResponse("not found; open the address that farspan view printed\n", 404)
    else:
        response = await answer(request)
    response.headers.update(_HEADERS)
    return response


class Pages:
    """The handlers of GET requests."""

    def __init__(self, workspace: Workspace, token: str, first: int | None) -> None:
        self._workspace, self._root, self._first = workspace, f"/{token}/", first
        self._page = lru_cache(maxsize=16)(lambda name, row, options: workspace.subject(name).page(row, options))

    async def show_error(self, request: Request, error: Exception) -> Response:
        """Answer an error with a page that gives the reason."""
        status, reason = (error.status_code, error.detail) if isinstance(error, HTTPException) else (400, str(error))
        return self._message(request, "not found" if status == 404 else "cannot be shown", reason, status=status)

    def index(self, request: Request) -> Response:
        self._workspace.refresh()
        entries, state = list(self._workspace.entries.values()), self._state(request)
        runs = sum(entry.kind == "run" for entry in entries)
        if runs == len(entries):
            return RedirectResponse(f"{self._root}runs/{query(state)}")
        if len(entries) == 1:
            subject = self._workspace.subject(entries[0].name)
            if self._first is None:
                return RedirectResponse(f"{self._base(subject)}{query(state)}")
            return RedirectResponse(self._row_url(subject, self._first, state))
        return self._html(
            request,
            "overview.html",
            None,
            entries=entries,
            graph=draw_graph(entries),
            runs=runs,
            studies=read_tables(self._workspace.folders),
            title=", ".join(map(base_name, self._workspace.folders)) or "view",
            WIDTH=WIDTH,
            HEIGHT=HEIGHT,
            MOST=_MOST,
        )

    def table(self, request: Request) -> Response:
        entry = self._workspace.entries.get(request.path_params["subject"])
        if entry and entry.kind == "run":
            return RedirectResponse(f"{self._root}runs/{query(self._state(request), run=entry.name)}")
        subject, state = self._subject(request), self._state(request)
        table = self._workspace.table(subject)
        start = _number(request.query_params.get("start") or "0", "start")
        return self._html(
            request,
            "table.html",
            subject,
            columns=[(measure, table.histogram(measure)) for measure in table.measures] if len(subject) else [],
            listing=table.page(Filter.parse(state), state.get("sort", ""), start),
            start=start,
            draw=0,
            SHOWN=SHOWN,
            title=subject.name,
        )

    def runs(self, request: Request) -> Response:
        names = request.query_params.getlist("run")
        chosen = urlencode([("run", name) for name in names])
        values = describe_runs(self._workspace, names)
        return self._html(request, "runs.html", None, live=True, chosen=chosen, title="runs", **values)

    def panels(self, request: Request) -> Response:
        """Answer with the curves, or with status 204 if none has grown since the page with ``seen``."""
        values = describe_runs(self._workspace, request.query_params.getlist("run"))
        if request.query_params.get("seen") == values["seen"]:
            return Response(status_code=204)
        html = render("panels.html", root=self._root, live=True, **values)
        return HTMLResponse(html, headers={"X-Seen": values["seen"]})

    def static(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name not in _ASSETS:
            raise HTTPException(404, f"no file {name}")
        return Response(asset(name), media_type=_ASSETS[name])

    def row(self, request: Request) -> Response:
        subject = self._subject(request)
        row, options = self._row(subject, request.path_params["row"]), self._page_options(subject, request)
        return self._html(
            request,
            "row.html",
            subject,
            page=self._page(subject.name, row, options),
            title=f"{row} · {subject.name}",
            draw=options.draw,
            MORE=MORE,
            shown=PARTS,
        )

    def block(self, request: Request) -> Response:
        """Answer with more of a text, or with its tokens one by one."""
        subject, parameters = self._subject(request), request.query_params
        row, options = self._row(subject, request.path_params["row"]), self._page_options(subject, request)
        start = _number(parameters.get("start", "0"), "start")
        size = min(max(_number(parameters.get("stop") or str(start + MORE), "stop") - start, 1), MORE)
        column, block = self._page(subject.name, row, options).find(parameters.get("at", ""))
        block = block.cut(start, size)
        if parameters.get("tokens") and block.ids is not None:
            html = token_html(block, subject.tokenizer, column.number)
        else:
            html = pieces_html(block.pieces, column.number, reasons_by_span(column))
        return HTMLResponse(render("fragment.html", block=block, html=html))

    def seek(self, request: Request) -> Response:
        """Search for the next row that fits the filter.

        The page's script gets JSON, shows progress, and sends further requests until a row is found.
        """
        subject, state = self._subject(request), self._state(request)
        start = _number(request.query_params.get("start", "0"), "start")
        step = -1 if request.query_params.get("step") == "-1" else 1
        left_text = request.query_params.get("left")
        left = len(subject) if left_text is None else max(_number(left_text, "left"), 0)
        match = search(subject, Filter.parse(state), start, step, left)
        left = max(left - match.looked_at, 0)
        if request.query_params.get("format") == "json":
            address = None if match.row is None else self._row_url(subject, match.row, state)
            return JSONResponse({"address": address, "next": match.next, "looked_at": match.looked_at, "left": left})
        if match.row is not None:
            return RedirectResponse(self._row_url(subject, match.row, state))
        links = []
        message = f"Looked at {format_count(match.looked_at, 'row')}; none fits the filter."
        if match.next is not None:
            message = f"{message[:-1]}, and {format_count(left, 'row')} are left."
            links.append(
                ("Continue", f"{self._base(subject)}seek{query(state, start=match.next, step=step, left=left)}")
            )
        last = min(max(start - step, 0), len(subject) - 1)
        links.append(("Back", self._row_url(subject, last, state)))
        return self._message(request, "search", message, links)

    def goto(self, request: Request) -> Response:
        subject = self._subject(request)
        row = self._row(subject, request.query_params.get("row", ""))
        return RedirectResponse(self._row_url(subject, row, self._state(request)))

    def random(self, request: Request) -> Response:
        """Go to a random row; with a filter, to the next row after it that fits."""
        subject, state = self._subject(request), self._state(request)
        rows = [row for row in Filter.parse(state).rows if row < len(subject)] or range(len(subject))
        if not rows:
            raise HTTPException(404, f"{subject.name} has no rows")
        return RedirectResponse(f"{self._base(subject)}seek{query(state, start=secrets.choice(rows), step=1)}")

    def _subject(self, request: Request) -> Subject:
        name = request.path_params["subject"]
        try:
            return self._workspace.subject(name)
        except KeyError:
            raise HTTPException(404, f"no artefact {name!r} here{nearest(name, self._workspace.entries)}") from None

    def _row(self, subject: Subject, text: str) -> int:
        row = _number(text, "row")
        if not 0 <= row < len(subject):
            raise HTTPException(404, f"row {row}: {subject.name} has {row_numbers(len(subject))}")
        return row

    def _state(self, request: Request) -> dict[str, str]:
        parameters = request.query_params
        return {name: parameters[name] for name in _STATE if parameters.get(name) and len(parameters[name]) <= _LONGEST}

    def _page_options(self, subject: Subject, request: Request) -> PageOptions:
        draw = _number(request.query_params.get("draw") or "0", "draw")
        if not 0 <= draw < max(subject.draws, 1):
            raise FarspanError(f"draw {draw}: {subject.name} has draws 0 to {subject.draws - 1}")
        return PageOptions(draw, _number(request.query_params.get("part") or "0", "part"))

    def _base(self, subject: Subject) -> str:
        return str(URL(f"{self._root}{subject.name}/"))

    def _row_url(self, subject: Subject, row: int, state: Mapping[str, str]) -> str:
        return f"{self._base(subject)}{row}{query(state)}"

    def _html(
        self, request: Request, template: str, subject: Subject | None, status: int = 200, **values: Any
    ) -> Response:
        """Fill in a template; that of a subject also gets the filter and the state of the address."""
        theme = request.query_params.get("theme")
        values |= {"root": self._root, "base": self._root, "theme": theme if theme in ("light", "dark") else None}
        if subject is not None:
            state = self._state(request)
            values |= {"subject": subject, "base": self._base(subject), "wanted": Filter.parse(state)}
            values["state"] = {**dict.fromkeys(_STATE, ""), **state}
        return HTMLResponse(render(template, **values), status)

    def _message(
        self, request: Request, title: str, message: str, links: Sequence[tuple[str, str]] = (), status: int = 200
    ) -> Response:
        return self._html(request, "message.html", None, status, title=title, message=message, links=links)


def _number(text: str, name: str) -> int:
    try:
        return whole_number(text)
    except ValueError:
        raise FarspanError(f"{name}={text[:40]!r}: give a whole number below 2^40") from None
