"""From files of SCROLLS's layout to a submission: pairs, fine-tuning, generation and evaluation, killed and resumed."""

import csv
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

import farspan
from corpora.schemas.pairs import open_pairs
from corpora.schemas.predictions import open_predictions
from corpora.verify.artefact import verify
from tests.artefacts import digests, small_tokenizer
from tests.killing import run_killed
from tests.pipelines.pairs.raw import write_scrolls

SMALL = {
    "model.width": 32,
    "model.feed_forward.width": 64,
    "model.encoder.positions.count": 256,
    "model.encoder.attention.size": 64,
    "data.source_length": 256,
    "data.source_multiple": 64,
    "data.target_length": 32,
    "data.target_multiple": 8,
    "evaluation.every": 1000,
    "run.device": "cpu",
}
"""Over ``tiny_finetune``."""
OPTIONS = {"block": 64, "query_length": 32, "source_length": 256, "target_length": 32}
QUICKLY = {"run.batch_size": 2, "schedule.warmup_steps": 1}
TASK = {"preset": "bart_ls", "options": OPTIONS}


def flags(settings: Mapping[str, object]) -> list[str]:
    return [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]


@pytest.fixture(scope="module")
def raw(tmp_path_factory):
    """Qasper of SCROLLS, and a tokenizer."""
    folder = tmp_path_factory.mktemp("downstream")
    small_tokenizer().save(str(folder / "tokenizer"))
    write_scrolls(folder / "scrolls")
    return folder


def read(raw: Path) -> dict[str, Any]:
    return {"input": [f"qasper={raw / 'scrolls' / 'qasper'}"], "format": "scrolls"}


def check(folder: Path, table: Mapping[str, Any]) -> None:
    """The table counts the validation pairs, and the submission has each test pair once."""
    pairs, predictions = open_pairs(str(folder / "pairs")), open_predictions(str(folder / "test"))
    assert table["examples"] == len(pairs.rows_of("validation"))
    (system,) = table["systems"]
    assert 0 <= system["scores"]["f1"]["low"] <= system["scores"]["f1"]["value"] <= 100
    with (folder / "scrolls.csv").open(newline="") as file:
        rows = list(csv.reader(file))
    assert rows[0] == ["Task", "ID", "Prediction"]
    assert [row[1:] for row in rows[1:]] == [
        [pair, text] for pair, text in zip(predictions.pair_ids, predictions.texts, strict=True)
    ]
    assert {row[0] for row in rows[1:]} == {"qasper"}
    for name in ("validation", "test"):
        assert verify(str(folder / name)) == []


def test_from_files_to_a_submission(raw, tmp_path):
    """In this process, with three updates."""
    farspan.documents(**read(raw), tokenizer=str(raw / "tokenizer"), output=str(tmp_path / "documents"))
    farspan.pairs(**read(raw), documents=str(tmp_path / "documents"), output=str(tmp_path / "pairs"))
    settings = {**SMALL, "data.pairs": tmp_path / "pairs", "run.directory": tmp_path / "run", "run.steps": 3}
    farspan.train("tiny_finetune", {**settings, "data.task": TASK, "run.dry_run": False, **QUICKLY})
    for split in ("validation", "test"):
        limits = {"max_tokens": 8}
        where: dict[str, Any] = {"pairs": str(tmp_path / "pairs"), "output": str(tmp_path / split), "split": split}
        farspan.generate(str(tmp_path / "run"), **where, generation=limits, device="cpu")
    table = farspan.evaluate([str(tmp_path / "validation")], "scrolls:qasper")
    farspan.submit([str(tmp_path / "test")], str(tmp_path / "scrolls.csv"), partial=True)
    check(tmp_path, table)


def command(*words: object) -> list[str]:
    return [str(Path(sys.executable).with_name("farspan")), *map(str, words)]


def run(words: list[str], moment: Callable[[], bool] | None = None) -> None:
    """Run a command, or kill it with -9 once ``moment`` is true."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(words, env=environment, start_new_session=True)
    while moment is not None and process.poll() is None and not moment():
        time.sleep(0.002)
    if moment is not None:
        assert process.poll() is None, f"{words[1]} ended before it could be killed"
        os.killpg(process.pid, signal.SIGKILL)
    assert process.wait() == (0 if moment is None else -signal.SIGKILL)


def everything(folder: Path, raw: Path, kill: bool) -> dict[str, object]:
    """All four commands in ``folder``; with ``kill``, each is killed in the middle first. Returns the bytes."""

    def both(words: list[str], moment: Callable[[], bool]) -> None:
        if kill:
            run(words, moment)
        run(words)

    documents, pairs, trained = raw / "documents", folder / "pairs", folder / "run"
    given = ("--input", f"qasper={raw / 'scrolls' / 'qasper'}", "--format", "scrolls")
    if kill:
        arguments = (f"qasper={raw / 'scrolls' / 'qasper'}", str(documents), str(pairs))
        run_killed("tests.pipelines.pairs.raw", "pairs_job_of_command", "pairs", *arguments)
    run(command("pairs", *given, "--documents", documents, "--output", pairs))

    options = {f"data.task.options.{name}": value for name, value in OPTIONS.items()}
    settings = {**SMALL, **options, "data.pairs": pairs, "run.directory": trained, "run.steps": 100}
    settings["checkpoint.every"] = 10
    middle = trained / "checkpoints" / "step-00000040" / "checkpoint.json"
    both(command("train", "tiny_finetune", *flags(settings)), middle.exists)
    for split in ("validation", "test"):
        output = folder / split
        words = command("generate", trained, "--pairs", pairs, "--split", split, "--output", output, "--device", "cpu")
        both(
            [*words, "--shard-rows", "2", "--generation", "min_tokens=3"],
            (lambda folder: lambda: any(folder.glob("shards/*")))(output),
        )
    table, begun = folder / "table.json", time.monotonic() + 0.5
    words = command("evaluate", folder / "validation", "--metrics", "scrolls:qasper", "--json", table)
    both(words, lambda: time.monotonic() > begun)
    run(command("submit", folder / "test", "--partial", "--output", folder / "scrolls.csv"))
    check(folder, json.loads(table.read_text()))
    last = trained / "checkpoints" / "step-00000100"
    systems = json.loads(table.read_text())["systems"]
    return {
        "pairs": digests(pairs),
        "weights": {str(path.relative_to(last)): path.read_bytes() for path in sorted(last.rglob("*.safetensors"))},
        "predictions": [digests(folder / split) for split in ("validation", "test")],
        "scores": [system["scores"] for system in systems],
        "submission": (folder / "scrolls.csv").read_bytes(),
    }


@pytest.mark.slow
def test_four_commands_that_are_killed_give_the_same_bytes(raw, tmp_path):
    """A hundred updates; some two minutes."""
    given = ("--input", f"qasper={raw / 'scrolls' / 'qasper'}", "--format", "scrolls")
    run(command("documents", *given, "--tokenizer", raw / "tokenizer", "--output", raw / "documents"))
    straight, killed = (everything(tmp_path / name, raw, name == "killed") for name in ("straight", "killed"))
    assert straight == killed
    assert straight["weights"]
    assert all(open_predictions(str(tmp_path / "killed" / split)).texts[0] for split in ("validation", "test"))
