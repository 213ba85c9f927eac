"""The command as a person types it: help, mistakes, and one small run from text to a trained step."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from unittest.mock import ANY

import pytest

from corpora.errors import FarspanError
from corpora.storage.manifest import farspan_version
from corpora.storage.manifest_file import read_manifest
from pipelines.cli import leave
from pipelines.commands import build_parser
from pipelines.engine.beam.flags import check_flags
from pipelines.engine.options import Engine
from tests.artefacts import make_documents, small_tokenizer


@pytest.mark.parametrize(
    "command",
    [
        "",
        "tokenizer train",
        "documents",
        "corpus random",
        "corpus linked",
        "embed",
        "cluster",
        "neighbours",
        "corpus long",
        "corpus related",
        "recipes",
        "tasks",
        "mask",
        "show",
        "stats",
        "verify",
        "finalize",
        "train",
    ],
)
def test_every_command_explains_itself(run, command):
    status, out, _ = run(*command.split(), "--help")
    assert status == 0
    assert "usage: farspan" in out
    assert len(out.splitlines()) > 5


def test_no_command_lists_the_commands(run):
    status, _, err = run()
    assert status == 2
    assert "COMMAND" in err
    commands = [line.split("  ")[1] for line in err.splitlines() if line.startswith("  farspan ")]
    assert len(commands) == 5
    for command in commands:  # each exists
        assert run(*command.split()[1:], "--help")[0] == 0


def test_errors_as_json(run):
    status, out, err = run("stats", "nothing", "--log-format", "json")
    assert (status, out) == (1, "")
    assert json.loads(err) == {"event": "error", "message": ANY}


def test_quiet_and_json_jobs(run, tmp_path):
    documents = make_documents(str(tmp_path / "documents"))
    flags = ("corpus", "random", "--documents", documents, "--sequence-length", 256)
    status, out, err = run(*flags, "--output", tmp_path / "corpus", "--log-format", "json", "--quiet")
    assert (status, err) == (0, "")
    told = json.loads(out)
    assert (told["event"], told["totals"]) == ("result", dict(read_manifest(str(tmp_path / "corpus")).totals))


def test_every_line_of_looking_at_artefacts_is_json(run, tmp_path):
    documents = make_documents(str(tmp_path / "documents"))
    page = str(tmp_path / "page.html")
    for words in (("verify", documents), ("stats", documents), ("view", documents, "--save", page, "--count", "2")):
        status, out, err = run(*words, "--log-format", "json")
        assert (status, err) == (0, "")
        (told,) = [json.loads(line) for line in out.splitlines()]
        assert told["event"] == "result"
        assert told.get("sound", told.get("rows", told.get("statistics")))


def test_mistakes_as_json(run):
    related = ("--documents", "nothing", "--output", "x", "--sequence-length", "9")
    status, out, err = run("corpus", "related", *related, "--log-format", "json")
    assert status == 1
    assert [json.loads(line)["event"] for line in (out + err).splitlines()] == ["error"]
    status, out, err = run("corpus", "random", "--ouput", "o", "--log-format=json")
    assert (status, out) == (2, "")
    assert "did you mean '--output'" in json.loads(err)["message"]


def test_a_misspelt_command_or_required_flag_suggests_the_nearest(run):
    status, _, err = run("documnts")
    assert (status, "did you mean 'documents'" in err) == (2, True)
    status, _, err = run("corpus", "randm")
    assert (status, "did you mean 'random'" in err) == (2, True)
    status, _, err = run("corpus", "random", "--documents", "d", "--sequence-length", "9", "--ouput", "o")
    assert (status, "did you mean '--output'" in err) == (2, True)


def test_the_version_is_printed(run):
    assert run("--version")[:2] == (0, f"farspan {farspan_version()}\n")


@pytest.mark.parametrize(
    "command",
    [("--help",), ("corpus", "linked", "--help"), ("mask", "--help"), ("train", "--help"), ("evaluate", "--help")],
)
def test_help_imports_nothing_heavy(command):
    heavy = ("numpy", "pyarrow", "fsspec", "numba", "torch", "apache_beam", "faiss", "transformers")
    code = (
        "import sys\nfrom pipelines.cli import main\ntry: main(sys.argv[1:])\n"
        f"except SystemExit: sys.exit(', '.join(set({heavy}) & set(sys.modules)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code, *command], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_small_commands_import_neither_beam_nor_models_nor_compilers(tmp_path):
    (tmp_path / "raw.jsonl").write_text('{"text": "One sentence. And another."}\n' * 3)
    small_tokenizer().save(str(tmp_path / "tokenizer"))
    commands = [
        "documents --input raw.jsonl --tokenizer tokenizer --output documents",
        "corpus random --documents documents --sequence-length 64 --output corpus",
        "mask span --preset t5 --corpus corpus --output masks",
        "show masks",
        "stats documents corpus",
        "verify documents corpus masks",
    ]
    code = (
        "import sys\nfrom pipelines.cli import main\n"
        "for command in sys.argv[1:]: main(command.split())\n"
        "heavy = {'torch', 'apache_beam', 'transformers', 'numba', 'pandas', 'fsspec', 'grpc'}\n"
        "print('imported:', sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *commands], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "imported: []"


def test_beams_own_flags_pass():
    check_flags(["--job_endpoint=localhost:1", "--environment_type=LOOPBACK", "--s3_endpoint_url=http://x"])
    with pytest.raises(FarspanError, match="neither farspan nor Beam"):
        check_flags(["--no-such-flag"])


def test_workers_are_chosen_by_the_size_of_the_job():
    assert Engine(workers=3).worker_count(8, 0) == 3
    assert Engine(workers=9).worker_count(2, 0) == 2
    assert Engine().worker_count(8, 1 << 20) == 1
    assert Engine().worker_count(1, 1 << 40) == 1


def test_the_parser_holds_no_surprise_abbreviations():
    options, rest = build_parser().parse_known_args(["verify", "x", "--corp", "y"])
    assert rest == ["--corp", "y"]
    assert options.corpus is None


@pytest.mark.parametrize("closed", ["stdout", "stderr"])
def test_an_error_ends_the_command_where_an_output_is_closed(monkeypatch, closed):
    monkeypatch.setattr(sys, closed, None)
    monkeypatch.setattr(os, "_exit", sys.exit)
    with pytest.raises(SystemExit) as end:
        leave(1)
    assert end.value.code == 1


@pytest.mark.parametrize("buffered", ["", "1"])
@pytest.mark.parametrize(
    "words", [["recipes"], ["--help"], ["mask", "--help"], ["mask", "span", "--options"], ["no-such"]], ids=" ".join
)
def test_a_reader_that_has_gone_is_no_error(words, buffered):
    reading, writing = os.pipe()
    os.close(reading)
    environment = {**os.environ, "PYTHONUNBUFFERED": buffered}
    command = [sys.executable, "-m", "pipelines", *words]
    ended = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, text=True, env=environment)
    os.close(writing)
    assert (ended.returncode, "Broken" in ended.stderr) == (2 if words == ["no-such"] else 0, False)
