"""Mistyped flags of jobs and commands."""

from __future__ import annotations

from tests.artefacts import make_documents


def test_a_misspelt_flag_is_an_error_that_suggests(run, tmp_path):
    documents = make_documents(str(tmp_path / "documents"))
    base = ["corpus", "random", "--documents", documents, "--sequence-length", "256", "--output", tmp_path / "c"]
    status, _, err = run(*base, "--direct_num_worker=2")
    assert status == 1
    assert "did you mean '--direct_num_workers'" in err
    status, _, err = run("verify", documents, "--fast")
    assert status == 1
    assert "--fast" in err
    status, _, err = run("verify", documents, "--corpse", "x")
    assert (status, "did you mean '--corpus'" in err) == (1, True)
    assert not (tmp_path / "c").exists()
