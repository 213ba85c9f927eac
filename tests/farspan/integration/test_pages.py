"""The commands and the Python of README.md and of pages, run as they stand, on a little text and small artefacts."""

import json
import re
import shlex
import sys
from dataclasses import replace
from glob import glob
from pathlib import Path

import numpy as np
import pytest

from corpora.readers.tasks import DATA_SETS
from objectives.api.special_tokens import SpecialTokens
from objectives.metrics.flavours import FLAVOURS, SCROLLS, list_metrics
from pipelines.cli import main, run
from pipelines.commands import build_parser
from tests.artefacts import all_rows, make_documents, make_pairs, make_predictions, small_tokenizer
from tests.trainer.conversion.models import tiny_model
from trainer.conversion.model_folder import write_model_folder
from trainer.conversion.vocabulary import Vocabulary
from trainer.recipe import load_recipe, read_recipe

ROOT = Path(__file__).parents[3]
WORDS = "the quick brown fox jumps over lazy dogs while seven wizards observe strange lights".split()


def blocks(page: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (ROOT / page).read_text("utf-8"), re.DOTALL)


JOBS, *OTHERS = blocks("docs/python.md")


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """The folder that the first block of the page makes."""
    place = tmp_path_factory.mktemp("python")
    (place / "text").mkdir()
    rng = np.random.default_rng(0)
    texts = [" ".join(" ".join(rng.choice(WORDS, 12)).capitalize() + "." for _ in range(10)) for _ in range(20)]
    (place / "text" / "a.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    (place / "my").symlink_to(place)  # the folder that README's commands make
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(place)
        exec(JOBS, {})
    return place


def test_the_first_block_makes_what_it_says(folder: Path):
    assert {path.parent.name for path in folder.glob("*/manifest.json")} == {"documents", "corpus", "masks"}


HOW_TO = [*blocks("docs/howto/transformers.md"), *blocks("docs/howto/decoders.md")]
EXPORTS = [blocks(f"docs/howto/{name}.md")[0] for name in ("megatron", "olmo_core")]  # others need the owners' packages


@pytest.mark.parametrize("block", [*OTHERS, *HOW_TO, *EXPORTS, *blocks("README.md")])
def test_a_block_runs(folder: Path, block: str, monkeypatch):
    if "Trainer" in block:
        pytest.importorskip("accelerate")
    monkeypatch.chdir(folder)
    names: dict = {}
    exec(block, names)
    if "Trainer" in block:
        assert int(names["dataset"]._epoch) == 1  # of 0 and 1
        assert names["trainer"].state.global_step > 0


DATASETS = (Path(__file__).parents[3] / "docs" / "datasets.md").read_text("utf-8")
RECORDS, DATASET_COMMANDS = (re.findall(rf"```{kind}\n(.*?)```", DATASETS, re.DOTALL) for kind in ("json", "sh"))


@pytest.fixture
def empty_folder(tmp_path, monkeypatch):
    small_tokenizer().save(str(tmp_path / "tokenizer.json"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run_all(commands: str) -> None:
    for command in commands.splitlines():
        flags, rest = build_parser().parse_known_args(shlex.split(command)[1:])
        run(flags.chosen, vars(flags), rest)


def test_the_example_runs(empty_folder, capsys):
    (empty_folder / "meetings").mkdir()
    (empty_folder / "meetings" / "train.jsonl").write_text(RECORDS[0])
    run_all(DATASET_COMMANDS[0])
    assert [row["document_id"].partition(":")[0] for row in all_rows("documents")] == ["qmsum"]
    rows = all_rows("pairs", "farspan.pairs")
    assert [row["references"] for row in rows] == [["Ann asked for a red lamp, and Bob agreed."], ["A red lamp."]]
    assert "2 pairs" in capsys.readouterr().out


def test_the_example_of_own_pairs_runs(empty_folder):
    (empty_folder / "mine").mkdir()
    (empty_folder / "mine" / "a.jsonl").write_text(RECORDS[1])
    run_all(DATASET_COMMANDS[1])
    (row,) = all_rows("pairs", "farspan.pairs")
    assert row["references"] == ["at noon", "12 o'clock"]


def test_the_page_names_every_data_set():
    section = DATASETS.split("## Files, documents and pairs of each format")[1].split("\n## ")[0]
    table = set(re.findall(r"^\| `([a-z][a-z-]+)` \|", section, re.MULTILINE))
    assert table == set(DATA_SETS)


BASE_MODEL = (Path(__file__).parents[3] / "docs/howto/base_model.md").read_text("utf-8")
QUICK = {
    "farspan train": "run.steps=1 run.batch_size=1 run.precision=fp32 run.dry_run=false schedule.warmup_steps=0 "
    "loss.r3f=none evaluation.generation.min_tokens=0 evaluation.generation.max_tokens=4 metrics.peak_tflops=1",
    "farspan generate": "max_tokens=4 min_tokens=0 beams=1",
}


def test_the_commands_of_the_page_lead_from_json_lines_to_scores(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    tokenizer = small_tokenizer()
    tokenizer.save(str(tmp_path / "tokenizer"))
    (tmp_path / "qmsum/jsonl").mkdir(parents=True)
    for split in ("train", "val"):
        (tmp_path / f"qmsum/jsonl/{split}.jsonl").write_text(RECORDS[0].replace("lamp", split))
    base = load_recipe("bart_ls_base").model
    small = replace(
        base, width=32, feed_forward=replace(base.feed_forward, width=32), heads=replace(base.heads, count=2)
    )
    owned = {name: number for name, number in tokenizer.owned_tokens.items() if name != "<mask>"}
    known = Vocabulary.of(SpecialTokens.append(tokenizer.vocab_size, owned), tokenizer.fingerprint)
    write_model_folder(tiny_model(small, known), tmp_path / "runs/bart_ls_base")
    for command in "".join(re.findall(r"```sh\n(.*?)```", BASE_MODEL, re.DOTALL)).splitlines():
        flag = "--generation" if "generate" in command else "--set"
        words = QUICK.get(" ".join(command.split()[:2]), "")
        quick = [part for word in words.split() for part in (flag, word)]
        flags, rest = build_parser().parse_known_args([*shlex.split(command)[1:], *quick])
        run(flags.chosen, vars(flags), rest)
    recipe = read_recipe(tmp_path / "runs/bart_ls_qmsum")
    assert recipe is not None
    assert recipe.model == replace(small, dropout=0.1, attention_dropout=0.1)  # the paper's dropouts
    assert "rouge/rougeL" in capsys.readouterr().out


EVALUATION = (ROOT / "docs" / "evaluation.md").read_text("utf-8")
COMMANDS = [line for block in re.findall(r"```sh\n(.*?)```", EVALUATION, re.DOTALL) for line in block.splitlines()]


@pytest.fixture(scope="module")
def evaluated(tmp_path_factory) -> Path:
    """The artefacts that the page names: pairs, two systems, a JSON file, and a folder for each task of SCROLLS."""
    root = tmp_path_factory.mktemp("evaluation-page")
    documents = make_documents(str(root / "documents"))
    attributes = [{"hard": True}, {"hard": False}]
    pairs = make_pairs(str(root / "pairs"), documents, 60, options=4, attributes=attributes)
    make_predictions(str(root / "block"), pairs)
    make_predictions(str(root / "pooling"), pairs, texts=["a word"] * 20)
    (root / "other.json").write_text(json.dumps({f"pair-{n}": "text" for n in range(2, 60, 3)}))
    (root / "qasper.json").write_text(json.dumps({"a question": "an answer"}))
    for task in SCROLLS:
        own = make_pairs(str(root / "of" / task), documents, 3, splits=["test"], attributes=[{"subset": task}])
        make_predictions(str(root / "submission" / task), own, "test")
    return root


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_runs(evaluated, command, monkeypatch):
    monkeypatch.setattr("pipelines.cli.leave", sys.exit)
    monkeypatch.chdir(evaluated)
    words = [part for word in shlex.split(command)[1:] for part in (sorted(glob(word)) if "*" in word else [word])]
    main(words)
    named = [word for word in words if word.endswith((".csv", ".svg")) or word == "systems.json"]
    assert all((evaluated / name).stat().st_size for name in named)


@pytest.mark.parametrize("block", re.findall(r"```python\n(.*?)```", EVALUATION, re.DOTALL))
def test_a_block_of_evaluation_runs(evaluated, block, monkeypatch):
    monkeypatch.chdir(evaluated)
    exec(block, {})


def test_every_metric_is_in_the_tables():
    named = set(re.findall(r"^\| `([^`]+)`", EVALUATION, re.MULTILINE))
    assert named >= set(FLAVOURS)
    assert all(f"`{name.removeprefix('scrolls:').removeprefix('rouge:')}`" in EVALUATION for name in list_metrics())


FINETUNING = (ROOT / "docs" / "finetuning.md").read_text("utf-8")
TUTORIAL, REST = FINETUNING.split("\n## At full size\n")


def blocks_of_kind(kind: str, text: str) -> list[str]:
    return re.findall(rf"```{kind}\n(.*?)```", text, re.DOTALL)


def commands(text: str) -> list[str]:
    return [line for block in blocks_of_kind("sh", text) for line in block.splitlines() if line.startswith("farspan ")]


DATA = blocks_of_kind("python", TUTORIAL)[0]
MODEL, ANSWERS = blocks_of_kind("toml", TUTORIAL)


def follow(folder: Path, data: str, model: str, answers: str, monkeypatch) -> dict:
    """Do what the tutorial says in ``folder``; returns the table of its evaluation."""
    monkeypatch.setattr("pipelines.cli.leave", sys.exit)
    monkeypatch.chdir(folder)
    (folder / "model.toml").write_text(model)
    (folder / "answers.toml").write_text(answers)
    exec(data, {})
    for command in commands(TUTORIAL):
        main(shlex.split(command)[1:])
    return json.loads((folder / "scores.json").read_text("utf-8"))


def test_the_tutorial_runs_with_less_data_and_few_updates(tmp_path, monkeypatch):
    few = re.compile(r"^steps = \d+", re.MULTILINE)
    model = few.sub("steps = 2", MODEL) + "\n[schedule]\nwarmup_steps = 1\n"
    answers = re.sub(r"^every = \d+", "every = 1", few.sub("steps = 2", ANSWERS), flags=re.MULTILINE)
    table = follow(tmp_path, DATA.replace("range(100)", "range(25)"), model, answers, monkeypatch)
    assert [system["name"] for system in table["systems"]] == ["answers", "blind-answers"]
    assert [group["name"] for group in table["groups"]["kind"]] == ["where", "who"]
    assert (tmp_path / "scores.svg").stat().st_size > 10_000
    lines = (tmp_path / "answers.csv").read_text("utf-8").splitlines()
    assert lines[0] == "Task,ID,Prediction"
    assert len(lines) == 1 + table["examples"] > 8


@pytest.mark.slow
def test_the_tutorial_runs_as_it_stands(tmp_path, monkeypatch):
    table = follow(tmp_path, DATA, MODEL, ANSWERS, monkeypatch)
    seeing, blind = (system["scores"]["f1"]["value"] for system in table["systems"])
    assert table["systems"][1]["differences"]["f1"]["high"] < 0, (seeing, blind)


@pytest.mark.parametrize("command", commands(REST))
def test_the_parser_takes_the_other_commands(command):
    options = build_parser().parse_args(shlex.split(command)[1:])
    if options.command == "train":
        load_recipe(options.recipe, options.set)


def test_pictures_are_there():
    pictures = re.findall(r"!\[[^]]+\]\(([^)]+)\)", FINETUNING)
    assert len(pictures) == 2
    for picture in pictures:
        assert (ROOT / "docs" / picture).stat().st_size > 10_000
