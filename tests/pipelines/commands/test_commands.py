"""Commands: the table, arguments, mistyped ones, explanations, completion; the last words of ``farspan train``."""

import csv
import io
import math
import os
import re
import shlex
import signal
from unittest.mock import Mock

import pytest

from corpora.errors import FarspanError
from corpora.options import Option, examples, options_of
from corpora.reporting import Reporting
from corpora.settings import make
from corpora.storage.files import read_user_toml
from pipelines.commands import build_parser
from pipelines.commands.command import Command, load
from pipelines.commands.table import COMMANDS
from pipelines.engine.options import Engine
from tests.artefacts import make_corpus, make_documents
from trainer.parallel.distributed import World
from trainer.recipe_files import list_recipes
from trainer.recipe_reference import recipe_keys, recipes
from trainer.run.step import Trainer


def written_examples() -> list[str]:
    text = "\n".join(examples(kind) for command in COMMANDS for kind in command.kinds())
    lines = re.sub(r" *\\\n *", " ", text).splitlines()
    return [line.strip().partition("  (")[0] for line in lines if line.strip().startswith("farspan ")]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_functions_and_options_are_where_the_table_says(command: Command):
    assert callable(load(command.run))
    assert all(kind.__doc__ for kind in command.kinds())


KINDS = {kind for command in COMMANDS for kind in command.kinds()} | {Engine, Reporting}
NEEDED = {"documents": "d", "output": "o", "sequence_length": 4096, "input": ["x"], "objective": "span", "corpus": "c"}
CHOICES = [(kind, option) for kind in sorted(KINDS, key=repr) for option in options_of(kind) if option.choices]


@pytest.mark.parametrize(("kind", "option"), CHOICES, ids=lambda part: getattr(part, "__name__", None) or part.name)
def test_a_word_that_is_none_of_an_options_choices_is_refused(kind: type, option: Option):
    message = rf"^--{option.name} is 'nothing'(?: \(did you mean .*\))?; choose one of {option.choices[0]!r}, "
    with pytest.raises(FarspanError, match=message):
        make(kind, {**NEEDED, option.keyword: "nothing"})


RANGES = [
    (kind, option, end)
    for kind in sorted(KINDS, key=repr)
    for option in options_of(kind)
    for end in (option.flag.least - 1, option.flag.most + 1)
    if math.isfinite(end)
]


@pytest.mark.parametrize(("kind", "option", "value"), RANGES, ids=lambda part: getattr(part, "name", None))
def test_a_number_outside_an_options_range_is_refused(kind: type, option: Option, value: float):
    message = rf"^--{option.name} {value}(?:\.0)?: give a number (?:of at least|from) "
    with pytest.raises(FarspanError, match=message):
        make(kind, {**NEEDED, option.keyword: [value] if isinstance(option.default, tuple) else value})


def test_options_with_a_range_or_choices_are_many():
    ranges, choices = {option.name for _, option, _ in RANGES}, {option.name for _, option in CHOICES}
    assert {"k", "threads", "shards", "bins", "task-files", "smooth", "port", "rows", "max-record-bytes"} < ranges
    assert {"policy", "order", "budget", "leftovers", "precision", "pooling", "device", "kind"} < choices


def test_examples_are_commands_with_all_that_is_required():
    found = written_examples()
    assert len(found) > 30
    for example in found:
        words = shlex.split(example.partition(" > ")[0])[1:]
        _, rest = build_parser().parse_known_args(words)
        assert rest == [], example


def test_arguments_without_dashes_are_one_or_more(run):
    status, _, err = run("stats", "--json")
    assert (status, "required: artefact" in err) == (2, True)


def test_a_misspelt_flag_is_an_error_that_suggests(run, tmp_path):
    documents = make_documents(str(tmp_path / "documents"))
    base = ["corpus", "random", "--documents", documents, "--sequence-length", "256", "--output", tmp_path / "c"]
    status, _, err = run(*base, "--direct_num_worker=2")
    assert status == 1
    assert "did you mean '--direct_num_workers'" in err
    status, _, err = run("verify", documents, "--corpse", "x")
    assert (status, "did you mean '--corpus'" in err) == (1, True)
    assert not (tmp_path / "c").exists()


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


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_knows_commands_flags_and_choices(run, shell):
    status, out, _ = run("completion", shell)
    assert status == 0
    for word in ("check-objective", "best-fit", "held-out"):
        assert word in out


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
    for said in ("step 2/2", "are done already"):
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
        (["no_such_recipe"], "no_such_recipe"),
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
    monkeypatch.setattr(World, "from_environment", Mock(side_effect=KeyboardInterrupt))
    assert train(recipe)[0] == 130


def test_progress_that_nobody_reads_any_more_is_status_1(train, recipe, tmp_path, monkeypatch):
    monkeypatch.setattr(Trainer, "update", Mock(side_effect=BrokenPipeError(32, "Broken pipe")))
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
    status, _, err = run("train", "--options", "tiny")
    assert (status, "is a recipe, not a key; `farspan recipes tiny` prints it" in err) == (1, True)
    _, out, _ = run("train", "--options")
    assert re.search(r"^model.encoder.attention.radius  .*; default 127; of pattern local, pattern tglobal$", out, re.M)
    assert re.search(r"^run.batch_size  .*; required$", out, re.M)


def flat(table, before=""):
    for name, value in table.items():
        yield from flat(value, f"{before}{name}.") if isinstance(value, dict) else [before + name]
