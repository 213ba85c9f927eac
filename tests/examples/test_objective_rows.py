"""The figures of one row under several objectives."""

from __future__ import annotations

import html
import re

from tests.artefacts import small_tokenizer
from tests.examples.scripts import load_example


def test_a_figure_for_each_objective_shows_the_whole_row(tmp_path, monkeypatch):
    figures = load_example("objective_rows")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(figures, "OBJECTIVES", {name: figures.OBJECTIVES[name] for name in ("span", "cross_document")})
    monkeypatch.setattr(figures, "LENGTH", 4096)  # of a vocabulary of single letters
    monkeypatch.setattr(figures, "SHOWN", 0)
    small_tokenizer().save(str(tmp_path / "tokenizer"))
    figures.draw(tmp_path / "tokenizer", tmp_path / "scorer", tmp_path)
    drawn = sorted(tmp_path.glob("show-*.svg"))
    assert [path.name for path in drawn] == ["show-cross-document.svg", "show-span.svg"]
    for path in drawn:
        text = html.unescape("".join(re.findall(r">([^<>]*)</t", path.read_text()))).replace("\xa0", " ")
        assert "".join(figures.DOCUMENTS[1].split()) in "".join(text.split())
