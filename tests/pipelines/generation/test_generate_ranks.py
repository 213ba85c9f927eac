"""``farspan generate`` as it is typed, in one process and under torchrun."""

from __future__ import annotations

import pytest

from corpora.errors import FarspanError
from corpora.storage.manifest import Manifest
from pipelines import cli

TOKENIZER = {"fingerprint": "", "vocab_size": 1, "owned_tokens": {}}
LINE = ["run", "--pairs", "p", "--generation", "beams=4"]


@pytest.mark.parametrize("rank", [None, "0", "1"])
def test_the_first_process_sums_up_the_predictions(run, monkeypatch, tmp_path, rank):
    given = []

    def generate(options):
        given.append(options)
        totals = {"predictions": 3, "tokens": 9}
        return Manifest("farspan.predictions", {"split": "train"}, 0, 64, TOKENIZER, totals=totals)

    monkeypatch.setattr("pipelines.generation.generate.generate", generate)
    if rank:
        monkeypatch.setenv("RANK", rank)
    status, out, err = run("generate", *LINE, "--output", tmp_path / "o")
    assert (status, err) == (0, "")
    assert out.startswith(f"{tmp_path / 'o'}: ") == (rank != "1")
    assert [(options.model, options.generation) for options in given] == [("run", {"beams": 4})]


@pytest.mark.parametrize("rank", ["0", "1"])
def test_what_all_processes_refuse_is_one_line(capsys, monkeypatch, tmp_path, rank):
    """Wrong options and a model that is not there."""
    monkeypatch.setattr(cli, "leave", lambda status: (_ for _ in ()).throw(SystemExit(status)))
    for name in ("RANK", "LOCAL_RANK"):
        monkeypatch.setenv(name, rank)
    for words in (["--shard-rows", "0"], []):
        with pytest.raises(SystemExit) as ended:
            cli.main(["generate", str(tmp_path / "none"), *LINE[1:], "--output", str(tmp_path / "o"), *words])
        assert ended.value.code == 1
        assert len(capsys.readouterr().err.splitlines()) == (rank == "0")


def test_the_function_raises_what_the_command_prints(tmp_path):
    from pipelines.generation.generate import generate
    from pipelines.generation.options import Generating

    with pytest.raises(FarspanError, match="none: does not exist; give a model folder"):
        generate(Generating(model=str(tmp_path / "none"), pairs="p", output="o"))
