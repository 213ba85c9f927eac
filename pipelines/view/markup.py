"""Pages as HTML: all text of artefacts is escaped, and its control and direction characters are written as codes."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import lru_cache
from hashlib import sha256
from importlib.resources import files
from itertools import groupby
from operator import attrgetter
from typing import Any
from urllib.parse import quote, urlencode

from corpora.errors import from_extra
from corpora.printing import format_count, printable
from corpora.tokenizers.protocol import Tokenizer
from pipelines.figures import thousands
from pipelines.pages.catalog import VIEWED
from pipelines.pages.page import Block, Column, Reason
from pipelines.pages.piece import BRACKETS, KINDS, Piece, shorten, token_pieces

with from_extra("view", "viewing artefacts"):
    from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
    from markupsafe import Markup, escape

_FROM_ZERO = ("draw", "masks", "part", "start")  # left out of an address if they are 0
_VISIBLE = str.maketrans({" ": "␣", "\n": "↵", "\t": "⇥"})  # in single tokens
_MARKS = {"hidden": "k-hidden", "shown": "k-shown", "replaced": "k-replaced", "candidate": "k-candidate"}


def safe(text: str) -> Markup:
    """Text of an artefact as HTML: escaped, control characters as ``\\x1b``, lone surrogates as ``\\ud800``."""
    return escape(printable(text).encode("utf-8", "backslashreplace").decode())


def pieces_html(pieces: Iterable[Piece], column: int = -1, reasons: Mapping[int, Reason] | None = None) -> Markup:
    """Pieces of a text as HTML; ``column`` is the mask set of their spans, whose ``reasons`` become tooltips."""
    return Markup("").join(_piece(piece, column, (reasons or {}).get(piece.span)) for piece in pieces)


def _piece(piece: Piece, column: int, reason: Reason | None) -> Markup:
    text = safe(piece.text)
    if piece.kind == "special":
        return Markup('<b class="special{}">{}</b>').format(" attended" if piece.marked else "", text)
    if piece.kind == "boundary":
        return Markup('<i class="boundary" title="a sentence begins" aria-hidden="true">{}</i>').format(text)
    if piece.kind == "shared":
        return Markup('<mark class="k-shared">{}</mark>').format(text)
    if piece.kind in _MARKS:
        title = KINDS[piece.kind] + (f" · {reason_words(reason)}" if reason else "")
        return Markup('<mark class="{}" data-span="{}-{}" title="{}">{}</mark>').format(
            _MARKS[piece.kind], column, piece.span, safe(title), text
        )
    return Markup('<span class="attended">{}</span>').format(text) if piece.marked else text


def token_html(block: Block, tokenizer: Tokenizer, column: int = -1) -> Markup:
    """A block as HTML, token by token, each with its id and position; the tokens of a span share a mark."""
    assert block.ids is not None
    html = []
    pieces = [replace(piece, start=piece.start - block.start) for piece in block.pieces if piece.tokens]
    for (kind, span), tokens in groupby(token_pieces(tokenizer, block.ids, pieces), attrgetter("kind", "span")):
        inner = Markup("").join(_token(block, piece) for piece in tokens)
        mark = Markup('<mark class="{}" data-span="{}-{}">{}</mark>')
        html.append(mark.format(_MARKS[kind], column, span, inner) if kind in _MARKS else inner)
    return Markup("").join(html)


def _token(block: Block, piece: Piece) -> Markup:
    assert block.ids is not None
    number, kind = int(block.ids[piece.start]), "special" if piece.kind == "special" else "plain"
    if piece.marked:
        kind += " attended"
    return Markup('<span class="token {}" title="token {}, id {}">{}<i>{}</i></span>').format(
        kind, block.start + piece.start, number, safe(piece.text.translate(_VISIBLE)) or "∅", number
    )


def reason_words(reason: Reason) -> str:
    """Rank, score and label of a span in one line."""
    words = [f"#{reason.rank + 1}"] if reason.rank is not None else []
    words += [f"score {reason.score:.4f}"] if reason.score is not None else []
    return " ".join([*words, f"[{reason.label}]"] if reason.label is not None else words)


def reasons_by_span(column: Column) -> dict[int, Reason]:
    """Span -> reason, for the spans of a column."""
    return {reason.span: reason for reason in column.reasons}


def query(state: Mapping[str, Any], **changed: Any) -> str:
    """``?key=value&...`` of a state with some values changed; empty values are left out."""
    values = {
        key: value
        for key, value in {**state, **changed}.items()
        if value not in (None, "") and not (key in _FROM_ZERO and str(value) == "0")
    }
    return f"?{urlencode(values)}" if values else ""


@lru_cache(maxsize=1)
def environment() -> Environment:
    """The templates, with the functions that they use."""
    templates = Environment(
        loader=PackageLoader("pipelines.view"),
        autoescape=select_autoescape(default=True, default_for_string=True),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.filters |= {"safe_text": safe, "quoted": lambda text: quote(text, safe="")}
    templates.globals |= {
        "pieces_html": pieces_html,
        "reason_words": reason_words,
        "reasons_by_span": reasons_by_span,
        "shorten": shorten,
        "query": query,
        "counted": format_count,
        "thousands": thousands,
        "size": format_size,
        "KINDS": KINDS,
        "VIEWED": VIEWED,
    }
    return templates


def format_size(size: int) -> str:
    """Bytes in the largest unit that leaves a number of at least 1."""
    power = min(max(len(str(size)) - 1, 0) // 3, 4)
    return f"{size / 1000**power:.{1 if power else 0}f} {('B', 'kB', 'MB', 'GB', 'TB')[power]}"


def render(template: str, **values: Any) -> str:
    """Fill in a template."""
    return environment().get_template(template).render(**values)


def asset(name: str) -> str:
    """Return a static file; the style sheet gets the rules for brackets around pieces."""
    text = files("pipelines.view").joinpath("static", name).read_text("utf-8")
    if name != "view.css":
        return text
    colourless = "@media print, (forced-colors: active), (monochrome)"
    return f"{text}\n{_bracket_rules('.brackets ')}{colourless} {{\n{_bracket_rules('')}}}\n"


def _bracket_rules(scope: str) -> str:
    """Style rules that put each kind of piece in its brackets."""
    return "".join(
        f'{scope}.k-{kind}:not(rect)::{side} {{ content: "{bracket}"; }}\n'
        for kind, (pair, _) in BRACKETS.items()
        for side, bracket in zip(("before", "after"), pair, strict=True)
    )


def build_saved_page(template: str, **values: Any) -> str:
    """A page as one self-contained file, whose policy allows only its own style and script."""
    style, script = asset("view.css"), asset("view.js")
    policy = f"default-src 'none'; style-src {_hash(style)}; script-src {_hash(script)}; base-uri 'none'"
    return render(template, theme=None, style=Markup(style), script=Markup(script), policy=policy, **values)


def _hash(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"
