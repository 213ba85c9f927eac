"""Texts of rows in colour."""

from __future__ import annotations

import numpy as np

from objectives.api.masks import IN_SOURCE, IN_TARGET, VISIBLE
from pipelines.inspect.row_text import as_seen
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


def test_flags_have_the_meaning_that_the_legend_says():
    from pipelines.inspect.row_text import _style

    assert len({_style(flag) for flag in (0, IN_SOURCE | IN_TARGET, VISIBLE | IN_TARGET, 8 | IN_TARGET)}) == 4
    assert _style(IN_TARGET) == _style(IN_SOURCE | IN_TARGET)
