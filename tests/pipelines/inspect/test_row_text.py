"""Texts of rows in colour."""

from __future__ import annotations

import io

import numpy as np
import pytest
from rich.console import Console

from pipelines.inspect.row_text import as_seen, as_text, brackets_of
from pipelines.pieces.piece import BRACKETS, KINDS, Piece
from tests.artefacts import small_tokenizer


def test_colours_say_what_happens_to_a_text():
    tokenizer = small_tokenizer()
    ids = np.array([400, *tokenizer.encode(["fox jumps"])[0], 401])
    attending = np.zeros(len(ids), bool)
    attending[0] = True
    text = as_seen(ids, tokenizer, {"<gap>": 400, "<eos>": 401}, attending)
    assert text.plain == "<gap>fox jumps<eos>"
    styles = {text.plain[span.start : span.end]: str(span.style) for span in text.spans}
    assert styles["<gap>"] == "bold red"
    assert styles["<eos>"] == "bold cyan"


def test_every_kind_of_span_has_brackets_of_its_own():
    for form in range(2):
        pairs = [pair[form] for pair in BRACKETS.values()]
        assert len(set(pairs)) == len(pairs)
    assert BRACKETS.keys() > KINDS.keys()
    assert "".join(plain for _, plain in BRACKETS.values()).isascii()


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"force_terminal": True, "color_system": "truecolor"}, "a hidden b"),
        ({"force_terminal": True, "no_color": True}, "a ⟦hidden⟧ b"),
        ({"file": io.StringIO()}, "a ⟦hidden⟧ b"),
        ({"file": io.TextIOWrapper(io.BytesIO(), "latin-1")}, "a [[hidden]] b"),
    ],
    ids=["colour", "NO_COLOR", "pipe", "latin-1"],
)
def test_without_colour_hidden_text_is_in_brackets(options: dict, expected: str):
    pieces = [Piece("a ", "text"), Piece("hidden", "hidden"), Piece(" b", "text")]
    assert as_text(pieces, brackets_of(Console(**options))).plain == expected
