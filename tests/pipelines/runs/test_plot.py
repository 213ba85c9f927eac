"""farspan plot."""

from __future__ import annotations

import re

import farspan
from tests.pipelines.runs.folders import make_run


def texts(svg: str) -> list[str]:
    return re.findall(r"<text[^>]*>([^<]*)</text>", svg)


def test_curves_restarts_and_spikes(tmp_path, run):
    one, other = make_run(tmp_path / "one", spikes=[120], restarts=[60]), make_run(tmp_path / "other")
    path = tmp_path / "curves.svg"
    status, out, errors = run("plot", one, other, "--figure", path, "--over", "tokens")
    assert (status, errors) == (0, "")
    assert out.splitlines() == [
        f"the loss rose at step 120: farspan show {one} --step 120",
        f"figure: {path}",
    ]
    svg = path.read_text()
    found = texts(svg)
    assert {"loss", "held-out loss", "learning rate", "gradient norm", "source tokens/s"} <= set(found)
    assert {"one", "other", "one wiki", "50k", "source tokens"} <= set(found)
    assert svg.count('id="restart"') == 5  # one in each panel
    assert f'id="farspan show {one} --step 120"' in svg  # the mark names the whole command
    assert "farspan show … --step 120" in found  # as this folder's name is too long for the panel
    assert any(text.startswith("dotted: the run was started again; triangle: the loss rose") for text in found)


def test_each_mark_names_its_command_in_full_view(tmp_path, run, monkeypatch):
    monkeypatch.chdir(tmp_path)
    make_run(tmp_path / "runs" / "a", spikes=[100, 150, 152, 190])
    _, out, _ = run("plot", "runs/a", "--figure", "curves.svg")
    commands = [f"farspan show runs/a --step {step}" for step in (100, 150, 190)]
    assert [line.partition(": ")[2] for line in out.splitlines()[:-1]] == commands
    assert set(commands) <= set(texts((tmp_path / "curves.svg").read_text()))


def test_only_the_metrics_that_were_asked_for(tmp_path, run):
    one, path = make_run(tmp_path / "one"), tmp_path / "curves.svg"
    assert run("plot", one, "--metric", "held_out_loss", "--metric", "loss", "--figure", path)[0] == 0
    titles = {"loss", "held-out loss", "learning rate", "gradient norm", "source tokens/s"}
    assert titles & set(texts(path.read_text())) == {"loss", "held-out loss"}
    assert "--metric losses: choose one of loss, held_out_loss," in run("plot", one, "--metric", "losses")[2]
    short = make_run(tmp_path / "short", steps=3)
    _, _, errors = run("plot", short, "--metric", "held_out_loss")
    assert errors.endswith(f"--metric held_out_loss: {short} did not record it; leave it out\n")


def test_the_python_function_returns_the_figure(tmp_path):
    path = tmp_path / "loss.svg"
    assert farspan.plot([make_run(tmp_path / "one")], metric="loss", figure=path) == path


def test_a_png_of_a_single_short_run(tmp_path, run):
    status, _, _ = run("plot", make_run(tmp_path / "one", steps=3), "--figure", tmp_path / "curves.png")
    assert status == 0
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")


def test_what_cannot_be_drawn(tmp_path, run):
    status, _, errors = run("plot", tmp_path, "--figure", tmp_path / "x.svg")
    assert status == 1
    assert "give a run of `farspan train`" in errors
    assert run("plot", tmp_path, "--smooth", 0)[0] == 1
