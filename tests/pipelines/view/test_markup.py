"""Pages as HTML: hostile texts stay texts."""

import re
from base64 import b64encode
from hashlib import sha256
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("jinja2", reason="farspan[view] is not installed")

from pipelines.pages.page import Block, Column, Link, Part, Reason, RowPage
from pipelines.pages.piece import BRACKETS, KINDS, Piece, plain_pieces
from pipelines.view.markup import asset, build_saved_page, pieces_html, query, reason_words, safe, token_html
from tests.artefacts import small_tokenizer

HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>\x00\x1b[31m\u202eright\u2066 {{ 7 * 7 }} & </div>"


class Seen(HTMLParser):
    """Tags, attributes and texts as a browser would read them."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""
        self.feed(html)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.attributes += attributes

    def handle_data(self, data):
        self.text += data


def hostile_page(row: int = 0) -> RowPage:
    pieces = [Piece(HOSTILE, "hidden", span=0)]
    block = Block("text-0", HOSTILE, HOSTILE, 9, lambda *_: pieces, part=0, title=HOSTILE).cut(0, 5)
    column = Column(HOSTILE, HOSTILE, (block,), options=HOSTILE, number=0, kinds=("hidden",))
    return RowPage(
        row,
        "row",
        ((HOSTILE, HOSTILE),),
        ((column,),),
        tokens=9,
        parts=(Part(HOSTILE, 0, 9, 0, 9, title=HOSTILE),),
        all_parts=1,
        links=(Link(near_duplicates=((HOSTILE, 0.5),)),),
        missing=(HOSTILE,),
    )


def test_text_is_escaped_and_controls_are_spelled():
    seen = Seen(str(safe(HOSTILE + "\ud800")))
    assert seen.tags == []
    assert seen.text.startswith("<script>alert(1)</script>\"'><img")
    assert "\\x00\\x1b[31m\\u202eright\\u2066 {{ 7 * 7 }}" in seen.text
    assert seen.text.endswith("\\ud800")


def test_no_tag_or_handler_comes_from_a_text():
    saved = build_saved_page("saved.html", title=HOSTILE, pages=[hostile_page(3), hostile_page(4)], summary=HOSTILE)
    seen = Seen(saved)
    assert seen.tags.count("script") == seen.tags.count("style") == 1
    assert "img" not in seen.tags
    assert not any(name.startswith("on") or name == "style" for name, _ in seen.attributes)
    assert not re.search(r"[\x00-\x08\x0b-\x1f\u202a-\u202e\u2066-\u2069]", saved)
    assert {value for name, value in seen.attributes if name == "id"} >= {"row-3", "row-4"}
    titles = [value for name, value in seen.attributes if name == "title" and str(value).startswith("<script>")]
    assert len(titles) == 2  # of the block, on each page
    assert saved.count('<bdi class="title"') == 4  # there, and in the chain


def test_pages_and_their_documentation_have_the_brackets_of_the_terminal():
    style, documented = asset("view.css"), (Path(__file__).parents[3] / "docs" / "view.md").read_text("utf-8")
    for kind, (pair, _) in BRACKETS.items():
        for side, bracket in zip(("before", "after"), pair, strict=True):
            assert style.count(f'.k-{kind}:not(rect)::{side} {{ content: "{bracket}"; }}') == 2  # also without colours
        assert kind == "shared" or pair[0] + KINDS[kind] + pair[1] in documented


def test_a_saved_page_allows_its_own_style_and_script_only():
    saved = build_saved_page("saved.html", title="corpus", pages=[hostile_page()], summary="1 row")
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]+)"', saved)
    policy = policy.replace("&#39;", "'")
    assert policy.startswith("default-src 'none';")
    for tag in ("style", "script"):
        (content,) = re.findall(rf"<{tag}>(.*?)</{tag}>", saved, re.DOTALL)
        assert f"{tag}-src 'sha256-{b64encode(sha256(content.encode()).digest()).decode()}'" in policy
    assert "http://" not in saved.replace("http://www.w3.org", "")
    assert "https://" not in saved
    assert "@import" not in saved
    assert 'class="more"' not in saved


def test_every_kind_has_a_mark_of_its_own():
    kinds: tuple[Any, ...] = ("text", "hidden", "shown", "replaced", "candidate", "special", "shared")
    html = [str(pieces_html([Piece("fox", kind, span=2)], 1)) for kind in kinds]
    assert len(set(html)) == len(kinds)
    assert html[0] == "fox"
    assert 'data-span="1-2"' in html[1]
    assert "attended" in str(pieces_html([Piece("fox", marked=True)]))
    reason = Reason(2, 0, 0.25, "<b>", 4, 9, "hidden")
    assert reason_words(reason) == "#1 score 0.2500 [<b>]"
    assert 'title="hidden · #1 score 0.2500 [&lt;b&gt;]"' in str(
        pieces_html([Piece("fox", "hidden", span=2)], 1, {2: reason})
    )


def test_tokens_have_their_ids():
    tokenizer = small_tokenizer()
    ids = tokenizer.encode(["the quick <b>☃"])[0]
    pieces = tuple(plain_pieces(tokenizer, ids, 2, len(ids)))
    seen = Seen(str(token_html(Block("a", "", "", len(ids), lambda *_: pieces, ids).cut(2, 99), tokenizer)))
    assert seen.tags == ["span", "i"] * (len(ids) - 2)
    assert ("title", f"token 2, id {ids[2]}") in seen.attributes
    assert [int(number) for number in re.findall(r"id (\d+)", str(seen.attributes))] == ids[2:].tolist()


def test_tokens_show_white_space_and_share_the_mark_of_their_span():
    tokenizer = small_tokenizer()
    ids = tokenizer.encode(["the quick  brown\nfox"])[0]
    cut = [Piece("the", "text", 0, 1), Piece("", "hidden", 1, len(ids) - 1, span=3)]
    html = str(token_html(Block("a", "", "", len(ids), lambda *_: cut, ids).cut(0, 99), tokenizer, 2))
    seen = Seen(html)
    assert seen.tags == ["span", "i", "mark"] + ["span", "i"] * (len(ids) - 1)
    assert ("data-span", "2-3") in seen.attributes
    assert "".join(re.findall(r">([^<]+)<i>", html)) == "the␣quick␣␣brown↵fox"


def test_an_address_keeps_what_was_chosen():
    state = {"source": "a b", "draw": "0", "most_hidden": "0", "text": ""}
    assert query(state, start=0, step=-1) == "?source=a+b&most_hidden=0&step=-1"
    assert query({}) == ""
