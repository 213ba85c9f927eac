"""Texts of rows in colour."""

from __future__ import annotations

import numpy as np

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
