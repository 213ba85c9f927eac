"""The server: only for this machine, only with the token, read-only, one row at a time; and its searches."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

import numpy as np
import pytest

pytest.importorskip("starlette", reason="farspan[view] is not installed")
from starlette.testclient import TestClient

from corpora.schemas.documents import DocumentSet
from corpora.schemas.pairs import PairSet
from corpora.schemas.predictions import PredictionSet
from pipelines.pages.document_rows import DocumentRows
from pipelines.pages.filters import Filter, within
from pipelines.pages.page import PageOptions
from pipelines.pages.pair_rows import PairRows, System
from pipelines.view import search as searches
from pipelines.view.app import build_app
from pipelines.view.search import Match, search


@pytest.fixture(scope="module")
def client(made, rows):
    subjects = [
        rows,
        DocumentRows("documents", DocumentSet(made["documents"])),
        PairRows("second", PairSet(made["pairs"]), [System("second", PredictionSet(made["second"]))]),
    ]
    return TestClient(build_app(subjects, "secret"), base_url="http://127.0.0.1:8000", follow_redirects=False)


def test_every_artefact_is_listed(client):
    answer = client.get("/secret/")
    assert answer.status_code == 200
    assert re.findall(r'href="/secret/([\w-]+/0)"', answer.text) == ["corpus/0", "documents/0", "second/0"]


@pytest.mark.parametrize("path", ["/", "/secre/", "/secrets/corpus/0", "//", "/wrong/static/view.css", "/favicon.ico"])
def test_nothing_is_there_without_the_token(client, path):
    answer = client.get(path)
    assert answer.status_code == 404
    assert "corpus" not in answer.text


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "192.168.0.2:8000", "", "localhost.evil:80"]
)
def test_another_host_is_refused(client, host):
    assert client.get("/secret/corpus/0", headers={"host": host}).status_code == 421


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost:1234", "[::1]:9"])
def test_this_machine_has_several_names(client, host):
    assert client.get("/secret/corpus/0", headers={"host": host}).status_code == 200


@pytest.mark.parametrize("path", ["/secret/corpus/0", "/secret/", "/secret/static/view.js", "/wrong/", "/secret/no/0"])
def test_every_answer_forbids_what_a_page_does_not_need(client, path):
    headers = client.get(path).headers
    assert "default-src 'none'" in headers["content-security-policy"]
    assert "unsafe" not in headers["content-security-policy"]
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
def test_nothing_can_be_changed(client, method):
    assert client.request(method, "/secret/corpus/0").status_code == 405


def test_a_page_asks_for_nothing_from_outside(client):
    for path in ("corpus/3", "documents/3", "second/3", "static/view.css", "static/view.js"):
        text = client.get(f"/secret/{path}").text
        assert not re.search(r"(?:href|src|action)=[\"'](?!/secret/|#|data:,)", text), path
        assert "http://" not in text
        assert "https://" not in text
        assert " style=" not in text  # the policy would ignore it


def test_a_hostile_prediction_stays_text(client):
    text = client.get("/secret/second/2").text
    assert "&lt;script&gt;" in text
    assert "<script>alert" not in text


@pytest.mark.parametrize(
    ("path", "status", "said"),
    [
        ("corpus/100000", 404, "corpus has rows 0 to"),
        ("corpse/0", 404, "did you mean &#39;corpus&#39;"),
        ("corpus/0?draw=7", 400, "draw 7: corpus has draws 0 to 1"),
        ("corpus/0?least=many", 400, "give a number of tokens"),
        ("corpus/0/block?at=text-9-9", 400, "no text"),
        ("corpus/0/block?at=text-0-0&start=x", 400, "give a whole number"),
        ("corpus/0/block?at=text-0-0&start=99999999999999999", 400, "give a whole number below 2^40"),
        ("corpus/goto?row=x", 400, "give a whole number"),
        (f"corpus/{'9' * 5000}", 400, "give a whole number"),
        (f"corpus/{'9' * 5000}/block?at=text-0-0", 400, "give a whole number"),
        (f"corpus/goto?row={'9' * 5000}", 400, "give a whole number"),
        (f"corpus/seek?least={'9' * 30}", 400, "give a number of tokens"),
        (f"corpus/seek?rows={'9' * 30}", 400, "give row numbers"),
        ("static/view.py", 404, "no file"),
    ],
)
def test_what_is_not_there_is_said(client, path, status, said):
    answer = client.get(f"/secret/{path}")
    assert answer.status_code == status
    assert said in answer.text


def test_more_of_a_text(client, rows):
    block = rows.page(3, PageOptions()).bands[0][0].blocks[0]
    given = {"at": block.address, "start": 2, "stop": 9, "column": 0}
    text = client.get("/secret/corpus/3/block", params=given).text
    assert f'data-start="2" data-stop="9" data-total="{block.total}"' in text
    tokens = client.get("/secret/corpus/3/block", params={**given, "tokens": 1}).text
    assert re.findall(r"<i>(\d+)</i>", tokens) == [str(number) for number in block.ids[2:9]]


def test_next_and_previous_keep_to_the_filter(client):
    answer = client.get("/secret/documents/seek?start=0&step=1&source=other&theme=dark")
    assert answer.headers["location"] == "/secret/documents/1?source=other&theme=dark"
    answer = client.get("/secret/documents/seek?start=4&step=-1&source=other")
    assert answer.headers["location"] == "/secret/documents/3?source=other"
    answer = client.get("/secret/documents/seek?start=5&source=nobody")
    assert "No row from row 5 on fits the filter." in answer.text
    assert "Search from the first row" in answer.text
    for _ in range(5):
        location = client.get("/secret/documents/random?source=other").headers["location"]
        assert int(re.findall(r"documents/(\d+)", location)[0]) % 2 == 1
    assert client.get("/secret/corpus/goto?row=7&draw=1").headers["location"] == "/secret/corpus/7?draw=1"


def test_a_search_shows_how_far_it_came(client, monkeypatch):
    monkeypatch.setattr(searches, "ROWS", 20)
    first = json.loads(client.get("/secret/documents/seek?format=json&source=nobody").text)
    assert first == {"address": None, "next": 32, "looked_at": 32}
    page = client.get("/secret/documents/seek?source=nobody").text
    assert "Looked at 32 rows, up to row 32 of 120; none fits." in page
    assert "seek?source=nobody&amp;start=32&amp;step=1" in page


def test_the_address_keeps_the_state(client):
    text = client.get("/secret/corpus/3?least=5&draw=1&theme=dark&rows=3,4").text
    assert 'data-theme="dark"' in text
    assert 'href="/secret/corpus/seek?least=5&amp;rows=3%2C4&amp;draw=1&amp;theme=dark&amp;start=4&amp;step=1"' in text


class Numbers:
    """A subject of so many rows; row n has n tokens and the text ``row N``, and its batches have ten rows."""

    def __init__(self, rows: int) -> None:
        self.rows, self.read = rows, []

    def __len__(self) -> int:
        return self.rows

    def batch_of(self, row: int) -> tuple[int, int]:
        return row // 10 * 10, min(row // 10 * 10 + 10, self.rows)

    def matches(self, start: int, stop: int, wanted: Filter) -> np.ndarray:
        self.read.append((start, stop))
        return within(np.arange(start, stop), wanted.least, wanted.most)

    def texts(self, row: int) -> Sequence[tuple[int, str]]:
        return [(1, "ro"), (1, f"W {row}")]


def all_found(subject, wanted: Filter, start: int, step: int) -> Match:
    """The end of a search that is continued."""
    looked = 0
    for _ in range(1_000):
        found = search(subject, wanted, start, step)
        looked += found.looked_at
        if found.row is not None or found.next is None:
            return Match(found.row, found.next, looked)
        assert found.next != start
        start = found.next
    raise AssertionError("it does not end")


@pytest.mark.parametrize(
    ("wanted", "start", "step", "row"),
    [
        (Filter(), 7, 1, 7),
        (Filter(least=33), 0, 1, 33),
        (Filter(least=33), 40, 1, 40),
        (Filter(most=33), 80, -1, 33),
        (Filter(least=33, most=20), 0, 1, None),
        (Filter(text="row 58"), 0, 1, 58),
        (Filter(text="ROW 5"), 99, -1, 59),
        (Filter(text="row x"), 0, 1, None),
        (Filter(rows=(3, 17, 64)), 4, 1, 17),
        (Filter(rows=(3, 17, 64)), 16, -1, 3),
        (Filter(rows=(3, 17, 64), least=18), 0, 1, 64),
        (Filter(rows=(3, 17, 640)), 18, 1, None),
        (Filter(), -1, -1, None),
        (Filter(), 100, 1, None),
    ],
)
@pytest.mark.parametrize("bounded", [False, True])
def test_the_next_row_that_fits(monkeypatch, wanted, start, step, row, bounded):
    if bounded:
        monkeypatch.setattr(searches, "ROWS", 10)
        monkeypatch.setattr(searches, "TOKENS", 6)
    assert all_found(Numbers(100), wanted, start, step).row == row


def test_one_search_reads_no_more_than_it_may(monkeypatch):
    monkeypatch.setattr(searches, "ROWS", 30)
    subject = Numbers(10**9)
    found = search(subject, Filter(least=10**8), 5, 1)
    assert found == Match(None, 30 + 10, 35)
    assert subject.read == [(5, 10), (10, 20), (20, 30), (30, 40)]
    monkeypatch.setattr(searches, "TOKENS", 8)
    assert search(Numbers(10**9), Filter(text="x"), 2, 1) == Match(None, 6, 0)
