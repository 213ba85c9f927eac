"""Explanations of objectives, with their options and presets."""

from __future__ import annotations


def test_an_objective_is_explained_with_options_and_presets(run):
    status, out, err = run("mask", "principal_sentences", "--options")
    assert (status, err) == (0, "")
    for words in (
        "strategy: selection of a text's sentences",
        "ratio = 0.3",
        "pegasus: ",
        "ratio=[0.1485, 0.45]",
        "target_length = null",
    ):
        assert words in out
    status, out, err = run("mask", "principal", "--options")
    assert (status, out) == (1, "")
    assert "did you mean 'principal_sentences'?" in err
    status, out, _ = run("mask", "--options")
    assert "name the objective first" in out
