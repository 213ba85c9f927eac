"""The command as a person types it: help, mistakes, and one small run from text to a trained step."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from corpora.errors import FarspanError
from corpora.storage.manifest import farspan_version
from pipelines.commands import build_parser
from pipelines.engine.beam.flags import check_flags
from pipelines.engine.options import Engine
from tests.artefacts import make_corpus, make_documents
from tests.tiny_encoder import make_encoder
from trainer.recipe_files import packaged_recipes


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


def test_a_misspelt_command_or_required_flag_suggests_the_nearest(run):
    status, _, err = run("documnts")
    assert (status, "did you mean 'documents'" in err) == (2, True)
    status, _, err = run("corpus", "randm")
    assert (status, "did you mean 'random'" in err) == (2, True)
    status, _, err = run("corpus", "random", "--documents", "d", "--sequence-length", "9", "--ouput", "o")
    assert (status, "did you mean '--output'" in err) == (2, True)


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


def test_recipes_are_listed_and_printed(run):
    _, out, _ = run("recipes")
    assert "bart_ls_base             BART-LS, base (Xiong et al. 2022, arXiv:2209.10052)\n" in out
    assert len(out.splitlines()) == len(packaged_recipes())
    _, out, _ = run("recipes", "led_large")
    assert out.startswith("# LED, large")
    assert out.endswith("# led_large.toml extends led_base.toml: farspan recipes led_base\n")
    status, _, err = run("recipes", "led_bas")
    assert (status, "did you mean 'led_base'" in err) == (1, True)


def test_the_former_name_of_related_is_a_warning(run):
    status, out, err = run("corpus", "clusters", "--help")
    assert (status, err) == (0, "farspan: corpus clusters is now corpus related; the old name will go\n")
    assert "usage: farspan corpus related" in out
    assert "clusters" not in run("corpus", "--help")[1]


def test_the_version_is_printed(run):
    assert run("--version")[:2] == (0, f"farspan {farspan_version()}\n")


@pytest.mark.parametrize("command", [("--help",), ("corpus", "linked", "--help"), ("mask", "--help")])
def test_help_imports_nothing_heavy(command):
    heavy = ("numpy", "pyarrow", "numba", "torch", "apache_beam", "faiss", "transformers")
    code = (
        "import sys\nfrom pipelines.commands import build_parser\ntry: build_parser().parse_args(sys.argv[1:])\n"
        f"except SystemExit: sys.exit(', '.join(set({heavy}) & set(sys.modules)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code, *command], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


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


@pytest.mark.parametrize(
    ("flag", "value", "message"),
    [
        ("--k", 0, "--k 0: give a number of at least 1"),
        ("--probes", 0, "--probes 0"),
        ("--memory", 0, "--memory 0: give a positive number of GiB"),
        ("--iterations", 0, "--iterations 0"),
        ("--max-documents", 0, "--max-documents 0"),
        ("--centroids", 400, "--centroids 400: k-means has 96 vectors to learn from"),
        ("--shards", -1, "--shards -1"),
        ("--max-uses", 0, "--max-uses 0"),
        ("--block", 0, "--block 0"),
        ("--max-length", 1, "--max-length 1: the 2 special tokens of encoder tiny leave no room"),
    ],
)
def test_options_of_late_stages_are_refused_before_the_first(run, capsys, tmp_path, flag, value, message):
    documents = make_documents(str(tmp_path / "documents"))
    encoder = make_encoder(str(tmp_path / "tiny"))
    capsys.readouterr()  # what transformers says about saving
    command = ["corpus", "linked", "--documents", documents, "--encoder", encoder, "--sequence-length", "256"]
    status, _, err = run(*command, "--output", tmp_path / "corpus", flag, value)
    assert (status, len(err.splitlines())) == (1, 1)
    assert err.startswith(f"farspan: {message}")
    assert sorted(os.listdir(tmp_path)) == ["documents", "tiny"]


def test_an_output_that_holds_something_else_is_seen_before_the_first_stage(run, tmp_path):
    documents = make_documents(str(tmp_path / "documents"))
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus" / "mine.txt").write_text("mine")
    command = ["corpus", "linked", "--documents", documents, "--encoder", "nowhere", "--sequence-length", "256"]
    status, _, err = run(*command, "--output", tmp_path / "corpus")
    assert status == 1
    assert "corpus: not empty and no farspan artefact" in err


def test_beams_own_flags_pass():
    check_flags(["--job_endpoint=localhost:1", "--environment_type=LOOPBACK", "--s3_endpoint_url=http://x"])
    with pytest.raises(FarspanError, match="neither farspan nor Beam"):
        check_flags(["--no-such-flag"])


def test_workers_are_chosen_by_the_size_of_the_job():
    assert Engine(workers=3).worker_count(8, 0) == 3
    assert Engine(workers=9).worker_count(2, 0) == 2
    assert Engine().worker_count(8, 1 << 20) == 1
    assert Engine().worker_count(1, 1 << 40) == 1


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
    found = json.loads(out[: out.rindex("figure:")])
    assert 0 < found[0]["padding_share"] < 1
    assert found[1]["max_target_length"] > 0
    assert figure.stat().st_size > 5_000


def test_an_objective_is_explained_with_options_and_presets(run):
    status, out, err = run("mask", "principal_sentences", "--options")
    assert (status, err) == (0, "")
    for words in (
        "strategy: which sentences",
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


def test_verify_reports_and_fails(run, tmp_path):
    corpus = make_corpus(str(tmp_path / "corpus"))
    (tmp_path / "corpus" / "shards" / "part-00000-of-00002.arrow").unlink()
    status, out, err = run("verify", corpus)
    assert status == 1
    assert "part-00000-of-00002.arrow: missing" in out
    assert "1 of 1 folders are damaged" in err
    status, _, err = run("verify", tmp_path / "nothing")
    assert status == 1
    assert "no farspan artefact" in err


def test_training_from_the_command_line_refuses_a_misspelt_key(run):
    status, _, err = run("train", "tiny", "--set", "run.stepz=3")
    assert status == 1
    assert "steps" in err
    status, _, err = run("train", "no_such_recipe")
    assert status == 1
    assert "bart_ls_base" in err


def test_the_parser_holds_no_surprise_abbreviations():
    options, rest = build_parser().parse_known_args(["verify", "x", "--corp", "y"])
    assert rest == ["--corp", "y"]
    assert options.corpus is None
