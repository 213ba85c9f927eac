"""The options of ``farspan convert``, typed and by default."""

from __future__ import annotations

import argparse

import pytest

from corpora.flags import add_flags
from corpora.settings import make
from trainer.options import Conversion, Convert


def typed(line: str) -> Convert:
    parser = argparse.ArgumentParser(exit_on_error=False)
    add_flags(parser, Convert)
    return make(Convert, vars(parser.parse_args(line.split())))


def test_without_flags_nothing_is_changed_on_the_way():
    assert typed("from to") == Convert(source="from", output="to")
    assert typed("from to").conversion == Conversion(to="farspan")


def test_every_option_has_a_flag():
    line = "a b --recipe tiny --set model.width=8 --set model.dropout=0 --masks m --vocab-size 9 --tokenizer t "
    assert typed(f"{line} --to huggingface --checkpoint best").conversion == Conversion(
        recipe="tiny",
        assignments=("model.width=8", "model.dropout=0"),
        masks="m",
        vocab_size=9,
        tokenizer="t",
        to="huggingface",
        checkpoint="best",
    )


def test_another_format_is_refused():
    with pytest.raises(argparse.ArgumentError, match="invalid choice: 'onnx'"):
        typed("a b --to onnx")
