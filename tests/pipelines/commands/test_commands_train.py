"""The status and the last words of ``farspan train``."""

from __future__ import annotations

import csv
import io
import os
import re
import signal

import pytest

from corpora.storage.user_files import read_user_toml
from tests.artefacts import make_corpus
from trainer.parallel.distributed import World
from trainer.recipe_files import list_recipes
from trainer.recipe_keys import recipe_keys
from trainer.recipe_table import recipes
from trainer.run.step import Trainer


@pytest.fixture(scope="module")
def recipe(tmp_path_factory):
    """Two updates of ``tiny``."""
    folder = tmp_path_factory.mktemp("recipe")
    path = folder / "recipe.toml"
    path.write_text(
        'extends = "tiny"\nmodel = { width = 32 }\nrun = { steps = 2, batch_size = 1, micro_batch_size = 1, '
        'device = "cpu", dry_run = false, non_finite = "abort" }\n'
        "schedule = { warmup_steps = 0 }\nmetrics = { peak_tflops = 1.0 }\n"
        f'data = {{ corpus = "{make_corpus(str(folder / "corpus"))}", source_length = 512, target_length = 256, '
        'objective = { name = "span" } }\n'
    )
    return str(path)


@pytest.fixture
def train(run):
    """(status, output, errors) of the command."""
    return lambda *arguments: run("train", *arguments)


def test_a_finished_run_is_status_0_and_so_is_one_with_nothing_left_to_do(train, recipe, tmp_path):
    for said in ("step 2/2", "nothing is left to do"):
        status, out, err = train(recipe, "--set", f"run.directory={tmp_path}")
        assert (status, err) == (0, "")
        assert said in out


def test_a_signal_is_a_checkpoint_a_message_and_status_0(train, recipe, tmp_path, monkeypatch):
    made = Trainer.update

    def update(self, *arguments, **named):
        os.kill(os.getpid(), signal.SIGTERM)
        return made(self, *arguments, **named)

    monkeypatch.setattr(Trainer, "update", update)
    status, out, _ = train(recipe, "--set", f"run.directory={tmp_path}")
    assert status == 0
    assert "stopped by SIGTERM after step 1; the same command continues from there" in out
    assert (tmp_path / "checkpoints/step-00000001/checkpoint.json").exists()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--fast"], "--fast: unknown argument"),
        (["--set", "run.stepz=3"], "did you mean 'steps'"),
        (["--set", "data.corpus=nowhere"], "nowhere"),
        (["--set", "optimizer.learning_rate=1e38"], "step 2: loss or gradient is not finite"),
    ],
)
def test_what_the_user_can_cure_is_status_1_and_one_line(train, recipe, tmp_path, given, said):
    status, _, err = train(recipe, *given, "--set", f"run.directory={tmp_path}")
    assert status == 1
    assert said in err
    assert len(err.splitlines()) == 1


def test_a_checkpoint_of_another_run_is_status_1(train, recipe, tmp_path):
    assert train(recipe, "--set", f"run.directory={tmp_path}")[0] == 0
    status, _, err = train(recipe, "--set", f"run.directory={tmp_path}", "--set", "run.seed=1")
    assert status == 1
    assert "run.seed: checkpoint 42, now 1" in err


def test_ctrl_c_before_a_run_has_begun_is_status_130(train, recipe, monkeypatch):
    def interrupted(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(World, "from_environment", interrupted)
    assert train(recipe)[0] == 130


def test_progress_that_nobody_reads_any_more_is_status_1(train, recipe, tmp_path, monkeypatch):
    def broken(*arguments, **named):
        raise BrokenPipeError(32, "Broken pipe")

    monkeypatch.setattr(Trainer, "update", broken)
    status, _, err = train(recipe, "--set", f"run.directory={tmp_path}")
    assert status == 1
    assert "continues from the last checkpoint" in err


def test_recipes_are_listed_and_printed(run):
    _, out, _ = run("recipes")
    assert re.search(r"bart_ls_base +│ +6\+6 │ +768 │ +122 M │ 16,384 │ +1024 │ +100,000 │ BART-LS, base", out)
    rows = list(csv.DictReader(io.StringIO(run("recipes", "--csv")[1])))
    assert [row["recipe"] for row in rows] == list(list_recipes())
    assert rows == [{name: "" if value is None else str(value) for name, value in row.items()} for row in recipes()]
    _, out, _ = run("recipes", "led_large")
    assert out.startswith("# LED, large")
    assert out.endswith("# led_large.toml extends led_base.toml: farspan recipes led_base\n")
    status, _, err = run("recipes", "led_bas")
    assert (status, "did you mean 'led_base'" in err) == (1, True)


def test_keys_of_recipes_are_explained(run):
    """A key's values are those of the packaged files; every key that these have is explained."""
    status, out, _ = run("train", "--options", "optimizer.eps")
    assert status == 0
    assert out.startswith("optimizer.eps\n  number; default 1e-06\n  parameters of Adam and AdamW.\n")
    assert "  1e-08 in bart_ls_finetune, cdlm, led_arxiv, primera\n" in out
    known = {key.name.replace("[]", "") for key in recipe_keys()}
    for path in list_recipes().values():
        for name in flat(read_user_toml(path)):
            assert name == "extends" or any(
                f"{name}.".startswith(f"{key}.") or key.startswith(f"{name}.") for key in known
            )
    assert not [key.name for key in recipe_keys() if not key.meaning]
    status, _, err = run("train", "--options", "optimizr.eps")
    assert (status, "did you mean 'optimizer.eps'?" in err) == (1, True)


def flat(table, before=""):
    for name, value in table.items():
        yield from flat(value, f"{before}{name}.") if isinstance(value, dict) else [before + name]


def test_training_from_the_command_line_refuses_a_misspelt_key(run):
    status, _, err = run("train", "tiny", "--set", "run.stepz=3")
    assert status == 1
    assert "steps" in err
    status, _, err = run("train", "no_such_recipe")
    assert status == 1
    assert "bart_ls_base" in err
