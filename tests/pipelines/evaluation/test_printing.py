"""The printed table: names, signs and groups."""

import json

import pytest

from corpora.reporting import Reporting, reporting
from pipelines.evaluation.evaluate import command, evaluate
from pipelines.evaluation.options import Evaluate, Evaluation
from pipelines.evaluation.printing import print_table, short_names


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
    assert {"f1 by source tokens", "exact_match by hard", "true (20 pairs)", "none (10 pairs)"} <= set(rows)
    for metric in table["metrics"].values():
        assert metric["flavour"] in printed


def test_a_program_gets_the_table_in_one_line(made, capsys):
    with reporting(Reporting(log_format="json")):
        command(Evaluate(predictions=(made.good,), evaluation=Evaluation(metrics=("f1",))))
    told = json.loads(capsys.readouterr().out)
    assert told["event"] == "result"
    assert [system["name"] for system in told["systems"]] == [made.good]
