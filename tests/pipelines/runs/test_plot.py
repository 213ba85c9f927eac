"""farspan plot."""

from __future__ import annotations

import re

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
    assert {"one", "other", "one wiki", "show one --step 120", "50k", "source tokens"} <= set(found)
    assert svg.count('id="restart"') == 5  # one in each panel
    assert f"farspan show {one} --step 120" in svg  # the mark names the whole command


def test_a_png_of_a_single_short_run(tmp_path, run):
    status, _, _ = run("plot", make_run(tmp_path / "one", steps=3), "--figure", tmp_path / "curves.png")
    assert status == 0
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")


def test_what_cannot_be_drawn(tmp_path, run):
    status, _, errors = run("plot", tmp_path, "--figure", tmp_path / "x.svg")
    assert status == 1
    assert "give a run of `farspan train`" in errors
    assert run("plot", tmp_path, "--smooth", 0)[0] == 1
