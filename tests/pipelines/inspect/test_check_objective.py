"""``farspan check-objective``: a sound objective passes, a broken law is named, what cannot start is one line."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from corpora.errors import FarspanError
from objectives.api.laws import LAWS
from tests.artefacts import make_corpus
from tests.third_party import install_objectives
from trainer.data.config import DataConfig, ObjectiveConfig
from trainer.run.sources import open_source

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
        ("follows_the_length", "its mask is drawn by its length, not by key and sequence id"),
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
