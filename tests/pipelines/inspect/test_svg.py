"""Figures: SVG files of what is printed, and files that matplotlib is to draw."""

from __future__ import annotations

import re
import sys
import xml.etree.ElementTree as ElementTree

import pytest
from rich.text import Text

from corpora.errors import FarspanError
from pipelines.figures.style import check_figure
from pipelines.inspect.print_page import recording_console, save_figure


def test_a_figure_holds_the_printed_text_in_its_colours(tmp_path, capsys):
    path = str(tmp_path / "row.svg")
    console = recording_console(path)
    console.print(Text("hidden <&> text", style="black on yellow"))
    save_figure(console, path)
    assert capsys.readouterr().out == ""
    picture = ElementTree.parse(path).getroot()  # well-formed
    shown = "".join(picture.itertext()).replace("\xa0", " ")
    assert "hidden <&> text" in shown
    assert "#ffe282" in (tmp_path / "row.svg").read_text()
    assert not re.search(r"@font-face|https?://(?!www\.w3\.org/2000/svg)", (tmp_path / "row.svg").read_text())


def test_equal_text_is_an_equal_file(tmp_path):
    for name in ("one.svg", "other.svg"):
        console = recording_console(name)
        console.print("text")
        save_figure(console, str(tmp_path / name))
    assert (tmp_path / "one.svg").read_bytes() == (tmp_path / "other.svg").read_bytes()


def test_a_row_is_drawn_as_svg_alone():
    with pytest.raises(FarspanError, match=r"--figure row.png: is drawn as SVG; give FILE.svg"):
        recording_console("row.png")


def test_pictures_of_distributions_have_a_known_suffix(monkeypatch):
    for name in ("a.svg", "a.PNG", "folder.x/a.pdf"):
        check_figure(name)
    for name in ("a.docx", "a", "png"):
        with pytest.raises(FarspanError, match=rf"--figure {name}: the suffix names no kind of picture"):
            check_figure(name)
    monkeypatch.setitem(sys.modules, "matplotlib.backend_bases", None)
    with pytest.raises(FarspanError, match=r"drawing a figure needs matplotlib.*pip install 'farspan\[figures\]'"):
        check_figure("a.svg")
