"""``farspan evaluate``: options, tables, figures and files."""

import json
import os

import numpy as np
import pytest

import farspan
from corpora.errors import FarspanError
from corpora.reporting import Reporting, reporting
from corpora.schemas.pairs import open_pairs
from objectives.metrics.bootstrap import resample_means
from objectives.metrics.metrics import load_metric
from pipelines.evaluation.evaluate import command, evaluate, load_metrics
from pipelines.evaluation.options import Evaluate, Evaluation
from pipelines.evaluation.report import _apart, draw, print_table, short_names
from pipelines.evaluation.systems import check_outputs
from tests.artefacts import make_documents, make_pairs, make_predictions


@pytest.fixture(scope="module")
def table(made):
    return evaluate([made.good, made.poor], "rouge:primera", by=["hard"], bins=3)


def test_values_are_those_of_the_metric(made, table):
    metric = load_metric("rouge:primera")
    texts = [own[0][: len(own[0]) // 2] for own in made.references]
    scores = metric.scores(texts, made.references)
    found = table["systems"][1]["scores"]
    assert {key: number["value"] for key, number in found.items()} == metric.aggregate(scores)
    assert table["metrics"] == {"rouge:primera": {"flavour": metric.flavour, "primary": "rouge/average"}}
    assert (table["examples"], table["split"], table["pairs"]) == (40, "validation", made.pairs)


def test_differences_are_paired(made, table):
    """Restated with counts of draws: the same examples for both systems."""
    draws = np.rint(40 * resample_means(np.eye(40)))
    metric = load_metric("rouge:primera")
    good = metric.scores([own[-1] for own in made.references], made.references)
    poor = metric.scores([own[0][: len(own[0]) // 2] for own in made.references], made.references)
    difference = draws @ (poor["rouge/rouge1"] - good["rouge/rouge1"]) / 40
    assert table["systems"][0]["differences"] == {}
    found = table["systems"][1]["differences"]["rouge/rouge1"]
    assert [found["low"], found["high"]] == pytest.approx(np.percentile(difference, [2.5, 97.5]), abs=1e-4)
    assert found["value"] == pytest.approx((poor["rouge/rouge1"] - good["rouge/rouge1"]).mean(), abs=2e-4)
    means = [draws @ poor[f"rouge/{key}"] / 40 for key in ("rouge1", "rouge2", "rougeL")]
    found = table["systems"][1]["scores"]["rouge/geometric_mean"]
    expected = np.percentile(np.prod(means, axis=0) ** (1 / 3), [2.5, 97.5])
    assert [found["low"], found["high"]] == pytest.approx(expected, abs=1e-4)
    assert found["low"] < found["value"] < found["high"]


def test_equal_calls_give_equal_tables(made, table):
    assert evaluate([made.good, made.poor], ["rouge:primera"], by=["hard"], bins=3) == table
    other = evaluate([made.good, made.poor], ["rouge:primera"], by=["hard"], bins=3, seed=1)
    assert other["systems"][1]["scores"] != table["systems"][1]["scores"]


def test_groups_have_all_pairs(made, table):
    bins, hard = table["groups"]["document tokens"], table["groups"]["hard"]
    for groups in (bins, hard):
        assert sum(group["examples"] for group in groups) == 40
        assert [[*own] for group in groups for own in group["scores"]] == [["rouge/average"]] * 2 * len(groups)
    assert max(group["examples"] for group in bins) - min(group["examples"] for group in bins) <= 4
    assert [group["name"] for group in hard] == ["false", "none", "true"]
    medians = [group["median_document_tokens"] for group in bins]
    assert medians == sorted(medians)
    whole = table["systems"][1]["scores"]["rouge/average"]["value"]
    average = sum(group["examples"] * group["scores"][1]["rouge/average"]["value"] for group in bins) / 40
    assert average == pytest.approx(whole, abs=1e-3)


def test_lengths_and_empty_predictions(made, table):
    good, poor = table["systems"]
    assert good["reference_words"] == poor["reference_words"]
    words = np.mean([len(own[-1].split()) for own in made.references])
    assert good["predicted_words"] == pytest.approx(words, abs=1e-4)
    texts = [own[0][: len(own[0]) // 2] for own in made.references]
    assert poor["empty"] == sum(not text.split() for text in texts) > 0


def test_both_metrics_of_quality_stand_in_one_table(made):
    found = evaluate(made.good, ["scrolls:quality", "quality_nearest"])["systems"][0]["scores"]
    assert found["exact_match"]["value"] == 100
    assert 0 < found["nearest_exact_match"]["value"] < 100  # of two references, the last was said


def test_two_flavours_are_refused(made):
    with pytest.raises(FarspanError, match="metrics rouge:t5 and scrolls:qmsum are two flavours of ROUGE, whose numb"):
        evaluate(made.good, ["rouge:t5", "scrolls:qmsum"])
    names = ["rouge:scrolls", "scrolls:qmsum", "f1"]
    assert [metric.name for metric in load_metrics([*names, "f1"])] == names


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"predictions": [], "metrics": "f1"}, "no predictions are named"),
        ({"metrics": []}, "no metric is named"),
        ({"metrics": "scrolls:qualty"}, "did you mean 'scrolls:quality'"),
        ({"metrics": "f1", "bins": 0}, "^bins 0: give a number of at least 1"),
        ({"metrics": "f1", "resamples": 10}, "^resamples 10: give a number of at least 40"),
    ],
)
def test_bad_options(made, keywords, message):
    with pytest.raises(FarspanError, match=message):
        evaluate(**{"predictions": made.good, **keywords})


def test_the_command(made, tmp_path, run):
    wanted = tmp_path / "t.json"
    arguments = (made.good, made.poor, "--metrics", "rouge:t5")
    status, printed, _ = run("evaluate", *arguments, "--json", wanted, "--resamples", 100)
    assert status == 0
    table = json.loads(wanted.read_text())
    assert table == farspan.evaluate([made.good, made.poor], "rouge:t5", resamples=100)
    assert table["metrics"]["rouge:t5"]["flavour"] in printed
    assert "40 pairs of split validation" in printed
    assert "less the first" in printed
    assert f"{table['systems'][1]['scores']['rouge/rouge1']['value']:.2f}" in printed


def test_groups_by_a_number_are_in_its_order(tmp_path):
    attributes = [*({"hops": hops} for hops in (10, 2, -1, "many", 2.5)), {}]
    documents = make_documents(str(tmp_path / "d"))
    pairs = make_pairs(str(tmp_path / "p"), documents, splits=["validation"], attributes=attributes)
    table = evaluate(make_predictions(str(tmp_path / "g"), pairs), "f1", by=["hops"])
    assert [group["name"] for group in table["groups"]["hops"]] == ["-1", "2", "2.5", "10", "many", "none"]


def test_no_input_is_replaced(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    os.symlink("a.json", "link.json")
    for path in ("a.json", "./a.json", str(tmp_path / "a.json"), "link.json", "g/predictions.json", "g/manifest.json"):
        with pytest.raises(FarspanError, match=r"--json: would replace .*, which is read; give another name"):
            check_outputs({"--figure": None, "--json": path}, ["a.json", "g/"])
    check_outputs({"--json": "g/scores.json", "--figure": "predictions.json"}, ["a.json", "g/"])


def test_evaluate_and_submit_keep_their_inputs(made, run, tmp_path):
    path = tmp_path / "answers.json"
    path.write_text(json.dumps(dict(zip(made.ids, ["text"] * len(made.ids), strict=True))))
    before = path.read_bytes()
    known = ("--pairs", made.pairs, "--split", "validation", "--metrics", "f1")
    for arguments in (
        ("evaluate", str(path), *known, "--json", str(path)),
        ("submit", f"qasper={path}", "--partial", "--output", str(tmp_path / "answers.csv")),
        ("submit", f"qasper={made.good}", "--partial", "--output", f"{made.good}/predictions.csv"),
    ):
        status, _, errors = run(*arguments)
        assert (status, "would replace" in errors) == (1, True)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["answers.json"]


@pytest.mark.parametrize(
    ("names", "short"),
    [
        (["a/b/c"], ["a/b/c"]),
        (["a/b/c", "a/b/d"], ["c", "d"]),
        (["/a/b/c/", "/a/d"], ["b/c", "d"]),
        (["b", "a/c"], ["b", "a/c"]),
        (["a/b", "a/b"], ["a/b", "a/b"]),
    ],
)
def test_names_lose_the_folder_of_all(names, short):
    assert short_names({"systems": [{"name": name} for name in names]}) == short


def test_what_is_printed(made, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    table = evaluate([made.good, made.poor], ["f1", "exact_match"], by=["hard"], bins=1)
    print_table(table)
    printed = capsys.readouterr().out
    rows = {row.strip("│ ").partition("│")[0].strip(): row for row in printed.splitlines() if "│" in row}
    assert "good" in printed
    assert made.good not in printed
    assert "100.00 [100.00, 100.00]" in rows["exact_match"]
    assert f"{table['systems'][1]['differences']['exact_match']['value']:+.2f} [" in printed
    assert {"f1 by document tokens", "exact_match by hard", "true (20 pairs)", "none (10 pairs)"} <= set(rows)
    for metric in table["metrics"].values():
        assert metric["flavour"] in printed


def test_a_program_gets_the_table_in_one_line(made, capsys):
    with reporting(Reporting(log_format="json")):
        command(Evaluate(predictions=(made.good,), evaluation=Evaluation(metrics=("f1",))))
    told = json.loads(capsys.readouterr().out)
    assert told["event"] == "result"
    assert [system["name"] for system in told["systems"]] == [made.good]


@pytest.fixture(scope="module")
def crossed(tmp_path_factory):
    """Predictions that are right at depth 0 and at length 512, for 60 pairs of 2 x 3 cells, of which one is empty."""
    folder = tmp_path_factory.mktemp("crossed")
    cells = [(512, 0), (512, 50), (4096, 0), (4096, 100), (4096, 50), (512, 0)]
    attributes = [{"length": length, "depth": depth, "number": 7} for length, depth in cells]
    pairs = make_pairs(
        str(folder / "pairs"),
        make_documents(str(folder / "documents")),
        60,
        splits=["validation"],
        attributes=[{**one, "number": number} for number, one in enumerate(5 * attributes)],
    )
    opened = open_pairs(pairs)
    references = opened.table(opened.rows_of("validation")).column("references").to_pylist()
    right = [length == 512 or depth == 0 for length, depth in 10 * cells]
    texts = [own[0] if good else "wrong" for own, good in zip(references, right, strict=True)]
    return make_predictions(str(folder / "right"), pairs, texts=texts)


def test_two_attributes_are_crossed(crossed, capsys):
    table = evaluate(crossed, "exact_match", by=["length", "depth", "length"], resamples=50)
    cells = {tuple(cell["name"]): cell for cell in table["crossed"]}
    names = [("512", "0"), ("512", "50"), ("4096", "0"), ("4096", "50"), ("4096", "100")]
    assert {name: cell["examples"] for name, cell in cells.items()} == {**dict.fromkeys(names, 10), names[0]: 20}
    values = {name: cell["scores"][0]["exact_match"]["value"] for name, cell in cells.items()}
    assert values == {name: 100.0 * (name[0] == "512" or name[1] == "0") for name in cells}
    print_table(table)
    printed = capsys.readouterr().out
    assert [line.split()[1::2] for line in printed.splitlines() if line.startswith("│ 50 ")] == [["50", "100.0", "0.0"]]
    assert evaluate(crossed, "exact_match", by=["length"], resamples=50)["crossed"] == []


def test_many_numbers_are_binned(crossed):
    groups = evaluate(crossed, "exact_match", by=["number"], bins=3, resamples=50)["groups"]["number"]
    assert [group["name"] for group in groups] == ["0 to 9", "10 to 19", "20 to 29"]
    assert [group["examples"] for group in groups] == [20, 20, 20]


def test_crossed_attributes_are_drawn_as_a_heat_map(crossed, tmp_path):
    table = evaluate([crossed, crossed], "exact_match", by=["length", "depth"], resamples=50)
    for name in ("a.svg", "b.svg"):
        draw(table, str(tmp_path / name))
    picture = (tmp_path / "a.svg").read_text()
    assert picture == (tmp_path / "b.svg").read_text()
    assert picture.count('id="axes_') == 3  # two systems and the scale
    for text in (">length</text>", ">depth</text>", ">4k</text>", ">512</text>"):
        assert picture.count(text) == 2
    assert picture.count("<image") == 3


def test_a_figure_says_what_it_shows(made, tmp_path):
    table = evaluate([made.good, made.poor], "f1", bins=2, resamples=50)
    for name in ("a.svg", "b.svg"):
        draw(table, str(tmp_path / name))
    picture = (tmp_path / "a.svg").read_text()
    assert picture == (tmp_path / "b.svg").read_text()
    assert picture.count('id="axes_') == 2
    axis = "tokens of the documents, median of each group"
    for text in ("f1: token F1", axis, "validation, 40 pairs", "f1 by length"):
        assert text in picture
    assert picture.count(">good</text>") == picture.count(">poor</text>") == 2  # at the axis and at the line


def test_numbers_of_groups_do_not_run_into_each_other():
    places = np.array([296.0, 517, 542, 5236])
    assert _apart(np.log(places), places) == ["296", "517", "", "5.24k"]
    assert _apart(places[:1], places[:1]) == ["296"]


def test_a_suffix_that_is_no_picture_is_refused_before_any_work(made, tmp_path, capsys):
    options = Evaluate(predictions=(made.good,), figure="x.csv", evaluation=Evaluation(metrics=("f1",)))
    with pytest.raises(FarspanError, match=r"--figure x.csv: the suffix names no kind of picture; give FILE.svg"):
        command(options)
    assert capsys.readouterr().out == ""
