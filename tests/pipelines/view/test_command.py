"""``farspan view`` as a command."""

from __future__ import annotations

import builtins
import re
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request

import pytest

pytest.importorskip("starlette", reason="farspan[view] is not installed")

from corpora.errors import FarspanError
from pipelines.view.command import command
from pipelines.view.options import View


def test_rows_are_saved_into_one_file(made, tmp_path, run):
    page = str(tmp_path / "page.html")
    status, out, errors = run("view", made["spans"], "--masks", made["sentences"], "--save", page, "--count", 3)
    assert (status, errors) == (0, "")
    assert out == f"{page}: 3 rows of {made['corpus']}\n"
    text = (tmp_path / "page.html").read_text()
    assert re.findall(r'<section class="saved" id="row-(\d+)"', text) == ["0", "1", "2"]
    assert text.count('<article class="column">') == 6
    command(View(artefact=(made["documents"],), save=page, rows="7,2"))
    assert re.findall(r'class="saved" id="row-(\d+)"', (tmp_path / "page.html").read_text()) == ["2", "7"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"save": "page.pdf"}, "--save page.pdf: is written as HTML"),
        ({"save": "page.html", "rows": "1,999"}, "--rows 1,999: .* has rows 0 to"),
        ({"rows": "99999"}, "--rows 99999: .* has rows 0 to"),  # before anything is served
        ({"save": "page.html", "row": 3, "count": 999}, "--row 3 --count 999: .* has rows 0 to"),
        ({"row": 99999}, "--row 99999: .* has rows 0 to"),
    ],
)
def test_what_cannot_be_shown_is_refused(made, options, message):
    with pytest.raises(FarspanError, match=message):
        command(View(artefact=(made["corpus"],), **options))


def test_one_file_holds_rows_of_one_artefact(made):
    with pytest.raises(FarspanError, match="holds rows of one artefact"):
        command(View(artefact=(made["corpus"], made["documents"]), save="page.html"))


def test_a_missing_extra_is_one_line(made, monkeypatch):
    original = builtins.__import__

    def without_jinja(name, *arguments, **named):
        if name == "jinja2":
            raise ModuleNotFoundError("no jinja2", name="jinja2")
        return original(name, *arguments, **named)

    monkeypatch.setattr(builtins, "__import__", without_jinja)
    with pytest.raises(FarspanError, match=r"viewing artefacts needs jinja2: pip install 'farspan\[view\]'"):
        command(View(artefact=(made["corpus"],)))


def test_a_used_port_is_refused(made):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(FarspanError, match=f"--port {port}: .*; give another, or 0 for a free one"):
            command(View(artefact=(made["corpus"],), port=port))


def test_asyncio_sends_small_packets_at_once(made, monkeypatch):
    """It does so for sockets whose protocol is TCP by name."""
    import uvicorn

    protocols = []
    monkeypatch.setattr(uvicorn.Server, "run", lambda _, sockets: protocols.extend(each.proto for each in sockets))
    command(View(artefact=(made["documents"],)))
    assert protocols == [socket.IPPROTO_TCP]


def test_pages_are_served_on_this_machine_alone(made):
    server = subprocess.Popen(
        [sys.executable, "-m", "pipelines", "view", made["documents"], "--rows", "3,5"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert server.stdout is not None
        address = server.stdout.readline().strip()
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/[\w-]{22}/\?rows=3,5", address)
        with urllib.request.urlopen(address, timeout=60) as answer:
            assert answer.url.endswith("documents/3?rows=3%2C5")
            assert b"document 3 of 119" in answer.read()
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(re.sub(r"/[\w-]{22}/.*", "/", address), timeout=60)
        server.send_signal(signal.SIGINT)  # Ctrl-C ends it, and stopped no work
        _, errors = server.communicate(timeout=60)
        assert (server.returncode, errors) == (0, "")
    finally:
        server.kill()
        server.wait(30)
