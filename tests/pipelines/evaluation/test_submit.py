"""Files for the SCROLLS server equal those of its script, and pandas reads back what was predicted."""

from __future__ import annotations

import io
import json
import os

import pandas as pd
import pytest

import farspan
from corpora.errors import FarspanError
from corpora.readers.tasks.scrolls import SUBSETS
from pipelines.evaluation.submit import csv_bytes, submit
from tests.artefacts import make_documents, make_pairs, make_predictions

ODD = ["None", "", "NA", "nan", "null", " lead ", 'a "quoted", text', "two\nlines", "é\u2028\U0001f600", ",", '"', "\n"]


def by_script(answers: dict[str, dict[str, str]]) -> bytes:
    """The steps of ``evaluator/prepare_submission.py``."""
    columns = ["Task", "ID", "Prediction"]
    table = pd.DataFrame(columns=columns, data=[])
    for task, own in answers.items():
        part = pd.DataFrame.from_dict(own, orient="index", columns=columns[-1:]).reset_index(drop=False)
        part["Task"], part["ID"] = task, part["index"]
        table = pd.concat((table, part[columns]))
    out = io.StringIO(newline="")
    table.reset_index(drop=True).to_csv(out, index=False)
    return out.getvalue().encode()


def read_back(data: bytes) -> list[list[str]]:
    values = ["!@#$%^&*()"]
    table = pd.read_csv(io.BytesIO(data), dtype=object, keep_default_na=False, na_values=values)
    assert table.columns.tolist() == ["Task", "ID", "Prediction"]
    return table.values.tolist()


def rows_of(answers):
    return [[task, pair, text] for task, own in answers.items() for pair, text in own.items()]


def test_bytes_are_those_of_the_script():
    answers = {task: {f"{task}-{n}": text for n, text in enumerate(ODD)} for task in SUBSETS[:3]}
    assert csv_bytes(answers) == by_script(answers)
    assert read_back(csv_bytes(answers)) == rows_of(answers)


def test_carriage_returns_survive():
    """pandas itself would leave them bare, and read another table."""
    answers = {"qasper": {"1": "a\rb", "2": "\r\n"}}
    assert read_back(csv_bytes(answers)) == rows_of(answers)
    assert csv_bytes(answers) != by_script(answers)


@pytest.fixture(scope="module")
def systems(tmp_path_factory):
    """Predictions of two data sets about one split ``test``, then of pairs that do not name theirs."""
    root = tmp_path_factory.mktemp("submit")
    documents = make_documents(str(root / "d"))
    made = {}
    for name, attributes in (("two", [{"subset": "quality"}, {"subset": "qasper"}]), ("silent", [{}])):
        pairs = make_pairs(str(root / f"{name}-pairs"), documents, splits=["test"], attributes=attributes)
        made[name] = make_predictions(str(root / name), pairs, "test", [f"{name}, {n}" for n in range(24)])
    return made


@pytest.fixture
def files(tmp_path) -> dict[str, str]:
    """A JSON file of each further data set."""
    made = {}
    for task in SUBSETS:
        if task not in ("quality", "qasper", "qmsum"):
            (tmp_path / f"{task}.json").write_text(json.dumps({f"{task}\u00e9": text for text in ODD}))
            made[task] = str(tmp_path / f"{task}.json")
    return made


def test_subsets_come_from_pairs_and_by_name(systems, files, tmp_path):
    named = [f"{name}={place}" for name, place in {**files, "qmsum": systems["silent"]}.items()]
    path = farspan.submit([systems["two"], *named], tmp_path / "s.csv")
    rows = read_back(path.read_bytes())
    assert list(dict.fromkeys(row[0] for row in rows)) == list(SUBSETS)
    assert [row for row in rows if row[0] == "quality"][:2] == [
        ["quality", "pair-0", "two, 0"],
        ["quality", "pair-2", "two, 2"],
    ]
    assert sum(row[0] == "qmsum" for row in rows) == 24
    twin = json.loads((tmp_path / "s.json").read_text())
    assert rows == rows_of(twin)


def test_missing_subsets(systems, tmp_path):
    with pytest.raises(
        FarspanError, match="5 of the 7 subsets of SCROLLS: qmsum, summ_screen_fd, narrative_qa, contract"
    ):
        submit(systems["two"], tmp_path / "s.csv")
    assert not (tmp_path / "s.csv").exists()
    submit(systems["two"], tmp_path / "s.csv", partial=True)
    assert len(read_back((tmp_path / "s.csv").read_bytes())) == 24
    with pytest.raises(FarspanError, match="no predictions for 7 of the 7 subsets"):
        submit([], tmp_path / "s.csv", partial=True)


def test_what_cannot_be_submitted(systems, files, made, tmp_path):
    out = tmp_path / "s.csv"
    with pytest.raises(FarspanError, match="do not name their subset; give SUBSET="):
        submit(systems["silent"], out)
    with pytest.raises(FarspanError, match=r"qasper has predictions in .* already; leave one out"):
        submit([systems["two"], f"qasper={systems['silent']}"], out)
    with pytest.raises(FarspanError, match=r"SCROLLS has no subset 'qaspr' \(did you mean 'qasper'\?\)"):
        submit(f"qaspr={systems['two']}", out)
    with pytest.raises(FarspanError, match="predictions of split validation, and the SCROLLS server scores test"):
        submit(made.good, out)
    with pytest.raises(FarspanError, match="a JSON file does not name the subset of its predictions; give SUBSET="):
        submit(next(iter(files.values())), out)
    with pytest.raises(FarspanError, match=r"give a name that ends in \.csv"):
        submit(systems["two"], tmp_path / "s.txt")


def test_predictions_of_pairs_that_were_moved(tmp_path):
    pairs = make_pairs(str(tmp_path / "p"), make_documents(str(tmp_path / "d")), splits=["test"])
    system = make_predictions(str(tmp_path / "g"), pairs, "test")
    out = tmp_path / "s.csv"
    before = submit(f"qasper={system}", out, partial=True).read_bytes()
    os.rename(pairs, tmp_path / "p2")
    with pytest.raises(FarspanError, match=f"its pairs, which name their subset, were moved; give SUBSET={system}"):
        submit(system, out, partial=True)
    assert submit(f"qasper={system}", out, partial=True).read_bytes() == before


def test_the_command(systems, tmp_path, run):
    out = str(tmp_path / "s.csv")
    status, printed, _ = run("submit", systems["two"], f"qmsum={systems['silent']}", "--partial", "--output", out)
    counts = "predictions: qmsum 24, qasper 12, quality 12"
    assert (status, printed) == (0, f"{out}: {counts}; the same as JSON in {out[:-3]}json\n")
    for given, message in (
        (["qmsun=x"], "qmsun=x: SCROLLS has no subset 'qmsun' (did you mean 'qmsum'?)"),
        (["qmsum=x"], "x: "),
    ):
        status, _, errors = run("submit", *given, "--output", out)
        assert (status, message in errors) == (1, True)


def test_a_name_with_an_equals_sign_is_a_path_if_it_exists(systems, tmp_path, run, monkeypatch):
    monkeypatch.chdir(tmp_path)
    os.symlink(systems["two"], "lr=3")
    assert run("submit", "lr=3", "--partial", "--output", "s.csv")[0] == 0
