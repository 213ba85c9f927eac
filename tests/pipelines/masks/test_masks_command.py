"""``farspan mask`` as it is typed."""

from __future__ import annotations

import json

from tests.artefacts import make_corpus


def test_a_presets_name_decides_its_objective(run, tmp_path):
    corpus = make_corpus(str(tmp_path / "corpus"))
    status, _, err = run("mask", "bart_ls_mixed", "--corpus", corpus, "--output", tmp_path / "masks")
    assert (status, err) == (0, "")
    assert json.loads((tmp_path / "masks/manifest.json").read_text())["config"]["objective"] == "span"
    for words, message in (
        (["bart_ls"], "'bart_ls' is a preset of model_based and principal_sentences and span; give one of these"),
        (["pegasux"], "no objective or preset is called 'pegasux' (did you mean 'pegasus_x'?)"),
        (["pegasus", "--preset", "t5"], "'pegasus' is itself a preset of principal_sentences"),
    ):
        status, _, err = run("mask", *words, "--corpus", corpus, "--output", tmp_path / "others")
        assert (status, err.startswith(f"farspan: {message}")) == (1, True)


def test_an_option_that_may_be_null_can_be_given_so(run, tmp_path):
    corpus = make_corpus(str(tmp_path / "corpus"))
    status, _, err = run("mask", "span", "--set", "separator=x", "--corpus", corpus, "--output", tmp_path / "masks")
    assert status == 1
    assert "option separator is 'x'; give <doc-sep>, <eos> or null" in err
    status, _, err = run("mask", "span", "--set", "separator=null", "--corpus", corpus, "--output", tmp_path / "masks")
    assert (status, err) == (0, "")
    assert json.loads((tmp_path / "masks/manifest.json").read_text())["config"]["options"]["separator"] is None
    status, out, _ = run("show", corpus, "--objective", "span", "--set", "separator=null")
    assert status == 0
    assert "<doc-sep>" not in out
    status, _, err = run("show", corpus, "--objective", "span", "--set", "density=null")
    assert status == 1
    assert "option density is null; give a number" in err
