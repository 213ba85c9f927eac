"""``farspan show``, ``stats`` and ``verify`` as they are typed."""

from __future__ import annotations

import json

from tests.artefacts import make_corpus


def test_show_stats_and_verify_read_what_the_jobs_write(run, tmp_path):
    corpus = make_corpus(str(tmp_path / "corpus"))
    status, out, err = run("mask", "span", "--preset", "t5", "--corpus", corpus, "--output", tmp_path / "masks")
    assert (status, err) == (0, "")
    assert "sequences" in out
    _, out, _ = run("verify", corpus, tmp_path / "masks")
    assert out.count("sound") == 2
    _, out, _ = run("show", tmp_path / "masks", "--row", "1")
    for word in ("parts", "source", "target", "<sentinel-0>", "<eos>"):
        assert word in out
    status, _, err = run("show", tmp_path / "masks", "--row", "100000")
    assert status == 1
    assert "has rows 0 to" in err
    _, out, _ = run("show", corpus)
    assert "made:" in out
    figure = tmp_path / "lengths.png"
    _, out, _ = run("stats", corpus, tmp_path / "masks", "--json", "--figure", figure)
    found = json.loads(out)
    assert 0 < found[0]["padding_share"] < 1
    assert found[1]["max_target_length"] > 0
    assert figure.stat().st_size > 5_000


def test_verify_reports_and_fails(run, tmp_path):
    corpus = make_corpus(str(tmp_path / "corpus"))
    (tmp_path / "corpus" / "shards" / "part-00000-of-00002.arrow").unlink()
    status, out, err = run("verify", corpus)
    assert status == 1
    assert "part-00000-of-00002.arrow: missing" in out
    assert "1 of 1 folder damaged" in err
    status, _, err = run("verify", tmp_path / "nothing")
    assert status == 1
    assert "no farspan artefact" in err
