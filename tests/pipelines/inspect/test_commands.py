"""`farspan show`, `stats`, `verify`, `tasks` and `check-objective` as they are typed."""

import csv
import io
import json
import os
import sys
from pathlib import Path

import pytest

from corpora.errors import FarspanError
from objectives.api.laws import LAWS
from objectives.tasks.presets import PRESETS
from tests.artefacts import make_corpus
from tests.third_party import install_objectives
from trainer.data.config import DataConfig, ObjectiveConfig
from trainer.run.sources import open_source


def test_show_stats_and_verify_read_what_the_jobs_write(run, tmp_path):
    corpus = make_corpus(str(tmp_path / "corpus"))
    status, out, err = run(
        "mask", "span", "--preset", "t5", "--corpus", corpus, "--output", tmp_path / "masks", "--quiet"
    )
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
    assert "--json takes no file: farspan stats ... --json > a.json" in run("stats", corpus, "--json", "a.json")[2]


def test_a_terminal_gets_the_command_that_is_likely_next(run, tmp_path, monkeypatch):
    corpus = make_corpus(str(tmp_path / "corpus"))
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    _, _, err = run("mask", "span", "--corpus", corpus, "--output", tmp_path / "some masks")
    assert f"next: farspan view '{tmp_path}/some masks'\n" in err


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


ROOT = Path(__file__).parents[3]
WRONG = {
    "exits": "Exits",
    "exits_at_once": "ExitsAtOnce",
    "follows_the_length": "FollowsTheLength",
    "hides_an_option": "HidesAnOption",
}
ENTRIES = {
    "sound": "tests.objectives.broken:Sound",
    "hashes": "tests.objectives.broken:Hashes",
    **{name: f"tests.objectives.broken:{kind}" for name, kind in WRONG.items()},
    "no_render": "tests.objectives.broken:NoRender",
}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> str:
    return make_corpus(str(tmp_path_factory.mktemp("check") / "corpus"))


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """Objectives of another package, here and in processes that inherit ``PYTHONPATH``."""
    site = tmp_path / "site"
    install_objectives(site, "broken-objectives", ENTRIES)
    monkeypatch.syspath_prepend(site)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(site), str(ROOT)]))


def test_a_sound_objective_holds_every_law(run, corpus, installed):
    status, out, err = run("check-objective", "sound", "--corpus", corpus, "--set", "spans=2", "--rows", "8")
    assert (status, err) == (0, "")
    lines = out.splitlines()
    assert len(lines) == len(LAWS) + 1
    assert all(line.startswith("holds   ") and line.endswith(".") for line in lines)


def test_what_differs_between_processes_is_found(run, corpus, installed):
    status, out, err = run("check-objective", "hashes", "--corpus", corpus, "--rows", "8")
    assert status == 1
    assert err == f"farspan: objective hashes breaks 2 of {len(LAWS) + 1} laws\n"
    broken = [line for line in out.splitlines() if line.startswith("BROKEN")]
    assert [line.split()[1] for line in broken] == ["Random", "Masks"]  # its hash knows of no key either
    assert "other masks; they may depend on the order of a set, on hash() or on a global random generator" in out


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("hides_an_option", "options lacks spans: other values of it would be lost in worker processes and manifests"),
        ("exits", "the other process ended with: farspan: plug-in exits of broken-objectives failed: SystemExit: 0"),
    ],
)
def test_what_is_wrong_at_its_defaults_is_found(run, corpus, installed, name, said):
    status, out, err = run("check-objective", name, "--corpus", corpus, "--rows", "8")
    assert status == 1
    assert said in out
    assert err.startswith(f"farspan: objective {name} breaks ")


def test_what_exits_before_a_law_is_tried_is_one_line(run, corpus, installed):
    status, out, err = run("check-objective", "exits_at_once", "--corpus", corpus)
    assert (status, out) == (1, "")
    assert err == "farspan: objective exits_at_once: validate calls sys.exit(0); raise an error\n"


def test_what_lacks_render_is_one_line_before_work_starts(run, corpus, installed, tmp_path):
    said = (
        "objective no_render: entry point tests.objectives.broken:NoRender of broken-objectives makes NoRender, which"
    )
    for arguments in (
        ("check-objective", "no_render", "--corpus", corpus),
        ("mask", "no_render", "--corpus", corpus, "--output", tmp_path / "masks"),
        ("show", corpus, "--objective", "no_render"),
    ):
        status, out, err = run(*arguments)
        assert (status, out) == (1, "")
        assert err.startswith(f"farspan: {said} lacks render")
        assert err.count("\n") == 1
    assert not (tmp_path / "masks").exists()
    data = DataConfig(corpus=corpus, source_length=256, target_length=256, objective=ObjectiveConfig(name="no_render"))
    with pytest.raises(FarspanError, match=f"data: {said} lacks render"):
        open_source(data)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--rows", "0"), "--rows 0: give a number of at least 1"),
        (("--preset", "t6"), "objective span has no preset 't6'"),
        (("--set", "density=7"), "span: option density is 7"),
        (("--set", "sentinels=1"), "span: option sentinels is 1, but a row"),
    ],
)
def test_what_cannot_be_tried_is_said(run, corpus, arguments, said):
    status, out, err = run("check-objective", "span", "--corpus", corpus, *arguments)
    assert (status, out) == (1, "")
    assert said in err
