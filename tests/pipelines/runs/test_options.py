"""Options of farspan runs and plot."""

from __future__ import annotations

import pytest

from pipelines.commands import build_parser


def test_plot_takes_several_runs():
    typed = build_parser().parse_args(["plot", "a", "b", "--over", "tokens", "--smooth", "5"])
    (options,) = typed.chosen.decode(vars(typed))
    assert (options.run, options.figure, options.over, options.smooth) == (("a", "b"), "curves.svg", "tokens", 5)


@pytest.mark.parametrize("words", [["plot"], ["runs"], ["plot", "a", "--over", "time"]])
def test_what_is_missing_or_unknown_is_refused(words: list[str], capsys):
    with pytest.raises(SystemExit):
        build_parser().parse_args(words)
    assert "farspan" in capsys.readouterr().err
