"""`farspan show`, `stats`, `verify` and `tasks` as they are typed."""

from __future__ import annotations

import csv
import io
import json
import sys

from objectives.tasks.presets import PRESETS
from tests.artefacts import make_corpus


def test_show_stats_and_verify_read_what_the_jobs_write(run, tmp_path):
    corpus = make_corpus(str(tmp_path / "corpus"))
    status, out, err = run("mask", "span", "--preset", "t5", "--corpus", corpus, "--output", tmp_path / "masks")
    assert (status, err) == (0, "")
    assert "sequences" in out
    _, out, _ = run("verify", corpus, tmp_path / "masks")
    assert out.count("sound") == 2
    _, out, _ = run("show", tmp_path / "masks", "--row", "1")
    for word in ("parts", "source", "target", "<sentinel-0>", "<eos>"):
        assert word in out
    status, _, err = run("show", tmp_path / "masks", "--row", "100000")
    assert status == 1
    assert "has rows 0 to" in err
    _, out, _ = run("show", corpus)
    assert "made:" in out
    figure = tmp_path / "lengths.png"
    _, out, _ = run("stats", tmp_path / "masks", corpus, "--json", "--figure", figure)  # columns by ancestry
    found = json.loads(out)
    assert 0 < found[0]["padding_share"] < 1
    assert found[1]["max_target_length"] > 0
    assert figure.stat().st_size > 5_000
    rows = list(csv.DictReader(io.StringIO(run("stats", tmp_path / "masks", corpus, "--csv")[1])))
    assert [row["format"] for row in rows] == ["farspan.corpus", "farspan.masks"]
    assert float(rows[1]["source_length.p50"]) == found[1]["source_length"]["p50"]
    assert "give one of them" in run("stats", corpus, "--csv", "--json")[2]


def test_a_terminal_gets_the_command_that_is_likely_next(run, tmp_path, monkeypatch):
    corpus = make_corpus(str(tmp_path / "a corpus"))
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    _, _, err = run("mask", "span", "--corpus", corpus, "--output", tmp_path / "masks")
    assert f"next: farspan train tiny --set data.corpus='{corpus}' --set data.masks={tmp_path}/masks " in err


def test_verify_reports_and_fails(run, tmp_path):
    corpus = make_corpus(str(tmp_path / "corpus"))
    (tmp_path / "corpus" / "shards" / "part-00000-of-00002.arrow").unlink()
    status, out, err = run("verify", corpus)
    assert status == 1
    assert "part-00000-of-00002.arrow: missing" in out
    assert "1 of 1 folder damaged" in err
    status, _, err = run("verify", tmp_path / "nothing")
    assert status == 1
    assert "no farspan artefact" in err


def test_tasks_and_presets_are_listed(run):
    status, out, _ = run("tasks")
    assert status == 0
    lines = out.splitlines()
    assert lines[0].startswith("text_to_text: documents, and perhaps a query,")
    assert [line.split(":")[0].strip() for line in lines[1 : 1 + len(PRESETS)]] == list(PRESETS)
    assert '  led: query="first", middle="<eos>", separator=null, global_attention="bos"' in out


def test_a_preset_is_explained_with_all_its_values(run):
    status, out, _ = run("tasks", "pegasus_x")
    assert status == 0
    assert "    leftover: part of its share that a short document does not need" in out
    assert "values with preset pegasus_x:" in out
    assert '  middle = "\\n\\n"\n' in out
    assert "  begin = false\n" in out
    assert "  block = 1024\n" in out


def test_a_task_unlike_any_other_is_answered_with_all_of_them(run):
    _, _, errors = run("tasks", "q")
    assert errors.startswith("farspan: no task or preset is called 'q'; presets: bart_ls, bart_ls_summary, ")
    assert errors.endswith(", scrolls, probe; installed: text_to_text\n")


def test_an_unknown_task_is_answered_with_the_nearest(run):
    status, _, errors = run("tasks", "pegasusx")
    assert status == 1
    assert (
        errors
        == "farspan: no task or preset is called 'pegasusx' (did you mean 'pegasus_x'?); installed: text_to_text\n"
    )
