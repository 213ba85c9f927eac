"""The server: only for this machine, only with the token, read-only, one row at a time; searches; pages in a cell."""

import json
import re
import shutil
import sys

import numpy as np
import pytest
from starlette.testclient import TestClient

import farspan
from corpora.errors import FarspanError
from corpora.schemas.documents import DocumentSet
from corpora.schemas.pairs import PairSet
from corpora.schemas.predictions import PredictionSet
from corpora.storage.sharded_rows import ShardedRows
from pipelines.pages import filters
from pipelines.pages.document_rows import DocumentRows
from pipelines.pages.options import View
from pipelines.pages.page import PageOptions
from pipelines.pages.pair_rows import PairRows, System
from pipelines.pages.table import Table
from pipelines.view.app import build_app
from pipelines.view.workspace import Workspace, spans_folders
from tests.pipelines.pages.invented import make_run
from tests.pipelines.test_runs import make_run as make_losses
from trainer.checkpoint.run_files import RECIPE, seal_line, write_sealed
from trainer.data.config import SourceConfig

pytest.importorskip("starlette", reason="farspan[view] is not installed")


@pytest.fixture(scope="module")
def subjects(made, rows):
    return [
        rows,
        DocumentRows("documents", DocumentSet(made["documents"])),
        PairRows("second", PairSet(made["pairs"]), [System("second", PredictionSet(made["second"]))]),
    ]


@pytest.fixture(scope="module")
def client(subjects):
    app = build_app(Workspace.of(subjects), "secret")
    return TestClient(app, base_url="http://127.0.0.1:8000", follow_redirects=False)


def test_every_artefact_is_listed(client):
    answer = client.get("/secret/")
    assert answer.status_code == 200
    assert re.findall(r'href="/secret/([\w-]+/)"', answer.text) == ["corpus/", "documents/", "second/"]


@pytest.mark.parametrize("path", ["/", "/secre/", "/secrets/corpus/0", "//", "/wrong/static/view.css", "/favicon.ico"])
def test_nothing_is_there_without_the_token(client, path):
    answer = client.get(path)
    assert answer.status_code == 404
    assert "corpus" not in answer.text


OTHERS = ("evil.example", "127.0.0.1.evil.example", "192.168.0.2:8000", "", "localhost.evil:80")


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost:1234", "[::1]:9", *OTHERS])
def test_only_this_machine_is_answered_by_any_of_its_names(client, host):
    assert client.get("/secret/corpus/0", headers={"host": host}).status_code == (421 if host in OTHERS else 200)


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
    given = {"at": block.address, "start": 2, "stop": 9}
    text = client.get("/secret/corpus/3/block", params=given).text
    assert f'data-start="2" data-stop="9" data-total="{block.total}"' in text
    tokens = client.get("/secret/corpus/3/block", params={**given, "tokens": 1}).text
    assert re.findall(r"<i>(\d+)</i>", tokens) == [str(number) for number in block.ids[2:9]]


def test_next_and_previous_keep_to_the_filter(client):
    answer = client.get("/secret/documents/seek?start=0&step=1&source=other&theme=dark")
    assert answer.headers["location"] == "/secret/documents/1?source=other&theme=dark"
    answer = client.get("/secret/documents/seek?start=4&step=-1&source=other")
    assert answer.headers["location"] == "/secret/documents/3?source=other"
    answer = client.get("/secret/documents/seek?start=119&step=1&source=other&most=0")
    assert "Looked at 120 rows; none fits the filter." in answer.text
    for _ in range(5):
        location = client.get("/secret/documents/random?source=other").headers["location"]
        location = client.get(location).headers["location"]
        assert int(re.findall(r"documents/(\d+)", location)[0]) % 2 == 1
    assert client.get("/secret/corpus/goto?row=7&draw=1").headers["location"] == "/secret/corpus/7?draw=1"


def test_a_search_shows_how_far_it_came(client, monkeypatch):
    monkeypatch.setattr(filters, "ROWS", 20)
    first = json.loads(client.get("/secret/documents/seek?format=json&source=nobody").text)
    assert first == {"address": None, "next": 32, "looked_at": 32, "left": 88}
    page = client.get("/secret/documents/seek?source=nobody").text
    assert "Looked at 32 rows; none fits the filter, and 88 rows are left." in page
    assert "seek?source=nobody&amp;start=32&amp;step=1&amp;left=88" in page


def test_the_address_keeps_the_state(client):
    text = client.get("/secret/corpus/3?least=5&draw=1&theme=dark&rows=3,4").text
    assert 'data-theme="dark"' in text
    assert 'href="/secret/corpus/seek?least=5&amp;rows=3%2C4&amp;draw=1&amp;theme=dark&amp;start=4&amp;step=1"' in text


def test_the_table_sorts_filters_and_names_its_samples(client, subjects, monkeypatch):
    text = client.get("/secret/documents/?sort=-tokens&source=other").text
    assert "60 of 120 rows, sorted." in text
    rows = [int(row) for row in re.findall(r'href="/secret/documents/(\d+)\?', text)]
    assert len(rows) == 51  # 50 rows, and the way to single rows
    assert all(row % 2 for row in rows[1:])
    assert 'rel="next" href="/secret/documents/?source=other&amp;sort=-tokens&amp;start=50"' in text
    assert client.get("/secret/corpus/?sort=size").status_code == 400
    assert "no column of corpus" in client.get("/secret/corpus/?sort=size").text
    monkeypatch.setattr(Table, "_limit", lambda _, rows: 64)
    sampled = TestClient(build_app(Workspace.of(subjects), "secret"), base_url="http://127.0.0.1:8000")
    text = sampled.get("/secret/documents/?sort=tokens").text
    sample = re.search(r"(\d+) of a sample of \1 rows, in whole batches spread evenly over 120, sorted\.", text)
    assert sample
    assert 32 < int(sample[1]) <= 64
    assert f"Columns of samples: tokens ({sample[1]} rows), sentences ({sample[1]} rows)" in text


@pytest.fixture(scope="module")
def folder(made, tmp_path_factory):
    """A folder with artefacts, a run that was trained for 60 updates with a spike at 50, and one without an update."""
    root = tmp_path_factory.mktemp("folder")
    for name in ("corpus", "spans", "first", "pairs", "documents"):
        shutil.copytree(made[name], root / name)
    mixture = [SourceConfig(name="a", corpus=str(root / "corpus"), masks=str(root / "spans"))]
    for name in ("run", "begun"):
        make_run(str(root / name), mixture, made["corpus"])
    lines = [{"step": step, "loss": 2 + 0.01 * (step % 3) + 3 * (step == 31)} for step in range(1, 41)]
    (root / "run" / "metrics.jsonl").write_bytes(b"".join(map(seal_line, lines)))
    text = {"source": "<b>", "pair": "p", "text": "the <i>fox", "references": ["a fox"], "scores": {"f1": 50.0}}
    write_sealed(root / "run" / "validation.json", {"step": 40, "texts": [text]})
    return root


@pytest.fixture(scope="module")
def shown(folder):
    return TestClient(build_app(Workspace(View(artefact=(str(folder),))), "secret"), base_url="http://127.0.0.1:8000")


def test_a_folder_is_an_overview_of_what_it_holds(shown):
    text = shown.get("/secret/").text
    assert set(re.findall(r'class="title" href="/secret/([\w-]+)/"', text)) == {
        *("corpus", "spans", "first", "pairs", "documents", "run", "begun")
    }
    assert len(re.findall(r'<path d="M', text)) == 5
    for name in ("corpus", "spans", "first", "pairs", "documents", "run-step-2"):
        assert shown.get(f"/secret/{name}/").status_code == 200
        assert shown.get(f"/secret/{name}/0").status_code == 200
    assert "% hidden, spans" in shown.get("/secret/corpus/").text  # the masks stand beside their corpus
    assert shown.get("/secret/run-step-999/").status_code == 400
    assert shown.get("/secret/corpus-step-1/").status_code == 400


def test_a_study_is_shown_by_its_tables(folder, tmp_path):
    study = shutil.copytree(folder, tmp_path / "study")
    for name in ("stages", "_work"):
        (study / name).mkdir()
    (study / "_work" / "job.json").write_text("{}")
    row = {"value": 1.0, "values": [0.5, 1.5], "difference": None, "low": None, "high": None, "significant": False}
    better = {**row, "value": 3.0, "difference": 2.0, "low": 1.0, "high": 4.0, "significant": True}
    rows = [{**row, "arm": "<a>", "differences": []}, {**better, "arm": "b", "differences": [2.0, 2.0]}]
    table = {"metric": "x.f1", "seeds": [0, 1], "examples": 9, "better": "higher", "baseline": "<a>", "rows": rows}
    (study / "table.json").write_text(json.dumps([table]))
    options = View(artefact=(str(study),))
    assert spans_folders(options)
    app = build_app(Workspace(options), "secret")
    text = TestClient(app, base_url="http://127.0.0.1:8000").get("/secret/").text
    assert "x.f1 <small>2 seeds, 9 examples; higher is better" in text
    assert "<td>&lt;a&gt;</td>" in text
    assert text.count('class="significant"') == 1
    assert "+1.000 to +4.000" in text
    (low, high), dots = re.findall(r'"M([\d.]+) 9H([\d.]+)"', text)[0], re.findall(r'cx="([\d.]+)"', text)
    assert 120 < float(low) < float(dots[2]) == float(dots[3]) < float(high) < 240
    assert float(dots[0]) + float(dots[1]) == 240  # the seeds of the baseline, around its mean


def test_the_page_of_runs_grows_with_them(shown, folder):
    answer = shown.get("/secret/run/?theme=dark")
    assert str(answer.url).endswith("/secret/runs/?theme=dark&run=run")
    text = answer.text
    assert 'href="/secret/run-step-31/"' in text
    assert "the loss rose at step 31" in text
    assert '<mark class="k-shared">fox</mark>' in text
    assert "the &lt;i&gt;" in text
    seen = re.findall(r'data-seen="([^"]+)"', text)[0]
    address = f"/secret/runs/panels?run=run&seen={seen}"
    assert shown.get(address).status_code == 204
    with (folder / "run" / "metrics.jsonl").open("ab") as file:
        file.write(seal_line({"step": 41, "loss": 2.0}))
    grown = shown.get(address)
    assert grown.status_code == 200
    assert ">41</a>" in grown.text
    assert grown.headers["x-seen"] != seen
    assert "begun" in shown.get("/secret/runs/").text
    assert "no run &#39;ran&#39; here" in shown.get("/secret/runs/?run=ran").text


def test_runs_are_saved_into_one_file(folder, tmp_path, run):
    page = tmp_path / "runs.html"
    status, out, errors = run("view", folder / "run", folder / "begun", "--save", page)
    assert (status, out, errors) == (0, f"{page}: 2 runs\n", "")
    text = page.read_text()
    assert "<polyline" in text
    assert "href=" not in text
    assert "data-live" not in text
    assert "name one artefact" in run("view", folder, "--rows", "3")[2]


pytest.importorskip("jinja2")


OPENED = {"corpus": "open_corpus", "spans": "open_masks", "documents": "open_documents", "pairs": "open_pairs",
          "first": "open_predictions"}  # fmt: skip


def test_a_cell_shows_rows_as_one_page_in_a_frame(made, tmp_path):
    cell = farspan.view(made["spans"], row=2, count=2)
    assert repr(cell) == f"Cell(2 rows of {made['corpus']})"
    html = cell._repr_html_()
    assert html.startswith('<iframe sandbox="allow-scripts"')
    assert html.count("<") == 2  # the page is text in an attribute: nothing of it can leave the frame
    assert cell.save(tmp_path / "page.html").read_text() == cell.html
    with pytest.raises(FarspanError, match="has rows 0 to"):
        farspan.view(made["spans"], row=10**6)
    run = make_losses(tmp_path / "run")
    (run / RECIPE).write_text("{}")
    assert repr(farspan.view(run)) == "Cell(1 run)"


@pytest.mark.parametrize(("name", "opener"), OPENED.items())
def test_an_opened_artefact_shows_its_first_row(made, monkeypatch, name, opener):
    rows = getattr(farspan, opener)(made[name])
    assert rows._repr_html_().startswith("<iframe")
    monkeypatch.setitem(sys.modules, "jinja2", None)
    assert rows._repr_html_() is None  # the notebook then prints the description
    monkeypatch.setattr(ShardedRows, "as_html", None)
    assert rows._repr_html_() is None


@pytest.mark.parametrize(("name", "opener"), OPENED.items())
def test_rows_as_a_data_frame(made, monkeypatch, name, opener):
    pytest.importorskip("pandas")
    rows = getattr(farspan, opener)(made[name])
    whole = rows.to_pandas()
    assert len(whole) == len(rows)
    assert list(whole) == list(rows[0])
    for column in ("tokens", "span_starts", "pair_id", "text"):
        if column in rows[0]:
            assert all(np.array_equal(one, row[column]) for one, row in zip(whole[column], rows, strict=True))
            (last,) = rows.to_pandas([len(rows) - 1])[column]
            assert np.array_equal(last, rows[-1][column])
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(FarspanError, match="pip install pandas"):
        rows.to_pandas()


def test_runs_and_recipes_are_functions(tmp_path):
    make_losses(tmp_path / "a")
    assert [run["run"] for run in farspan.runs(tmp_path)] == ["a"]
    assert {"recipe": "bart_ls_base", "width": 768}.items() <= next(
        row for row in farspan.recipes() if row["recipe"] == "bart_ls_base"
    ).items()
