"""Whole studies: killed and resumed, shared by processes, with torchrun, and what they write."""

import csv
import json
import os
import re
import signal
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest

from corpora.errors import FarspanError
from corpora.storage.manifest_file import read_manifest
from pipelines.engine.claims import Claims
from pipelines.engine.members import LAUNCHER, Identity, Member
from pipelines.interrupts import Interrupts
from pipelines.options import Study
from pipelines.study import run
from pipelines.study import table as table_module
from pipelines.study.report import FILES, draw, format_text, write_tables
from pipelines.study.steps import Step
from tests.killing import FORKS
from tests.pipelines.study.tiny_study import WORDS, write_study

KILLS, MOMENTS = 10, 6000  # a run of the study opens, renames and removes about as many files
_EVENTS = ("open", "os.rename", "os.remove", "os.link", "os.mkdir")


def work(options: Study, moment: int | None) -> None:
    """Run a study in this process, which kills itself before one of its accesses to the study's folder."""
    os.dup2(os.open(f"{options.output}.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND), 2)
    seen = 0

    def count(event: str, arguments: tuple) -> None:
        nonlocal seen
        if event in _EVENTS and options.output in str(arguments[0]):
            seen += 1
            if seen == moment:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(count)
    run.command(options)


def start(options: Study, moment: int | None = None):
    process = FORKS.Process(target=work, args=(options, moment), daemon=False)
    process.start()
    return process


def finish(options: Study, count: int = 1) -> dict[str, bytes]:
    """Run a study by several processes, and return its tables."""
    processes = [start(options) for _ in range(count)]
    for process in processes:
        process.join()
        assert process.exitcode == 0, Path(f"{options.output}.txt").read_text()
    return read_tables(options.output)


def read_tables(output: str) -> dict[str, bytes]:
    return {name: Path(output, name).read_bytes() for name in FILES}


def test_a_step_waits_for_its_parents_and_for_no_other(tmp_path):
    """Two chains; another process is at work on the first step of one until this process has done the other chain."""
    output, order = str(tmp_path), []
    stages = tmp_path / "_work" / "claims" / "stages"
    stages.mkdir(parents=True)
    (tmp_path / "_work" / "job.json").write_text("{}")

    def step(name: str, *parents: SimpleNamespace) -> SimpleNamespace:
        def work(_: str) -> None:
            order.append(name)
            if name == "a-2":
                Path(run.receipt_path(output, "b-1")).write_text("{}")

        made = {"stage": name[0], "id": name, "parents": {one.id: one for one in parents}}
        return SimpleNamespace(**made, run=work, words=lambda _: [])

    first, second = step("a-1"), step("b-1")
    steps = {one.id: cast("Step", one) for one in (step("b-2", second), step("a-2", first), second, first)}
    with Member(output, Identity.own(LAUNCHER, 60)) as other:
        assert Claims(str(stages), other.identity.name).create("b-1")
        run.take_part(steps, output, Interrupts(1))
    assert order == ["a-1", "a-2", "b-2"]


@pytest.mark.slow
def test_kills_and_cooperation_leave_the_table_as_it_is(tmp_path):
    """Ten kills at random moments, and three processes at a time; some minutes."""
    path = str(write_study(tmp_path))
    expected = finish(Study(file=path, output=str(tmp_path / "once")))
    assert b"nan" not in expected["table.json"]

    killed = Study(file=path, output=str(tmp_path / "killed"))
    kills = 0
    for moment in np.random.default_rng(0).integers(1, MOMENTS // 5, 10 * KILLS):
        process = start(killed, int(moment))
        process.join()
        kills += process.exitcode == -signal.SIGKILL
        if kills == KILLS:
            break
        assert process.exitcode == -signal.SIGKILL, Path(f"{killed.output}.txt").read_text()
    assert kills == KILLS
    assert finish(killed) == expected
    assert finish(Study(file=path, output=str(tmp_path / "shared")), 3) == expected
    assert finish(Study(file=path, output=str(tmp_path / "jobs"), jobs=2)) == expected


@pytest.mark.slow
def test_a_study_grows_and_uses_torchrun(tmp_path, capsys):
    """One stage under torchrun; then another value of an axis, for which only new stages run."""
    output = str(tmp_path / "out")
    rates = {"slow": {}, "fast": {"tuning": {"set": {"optimizer.learning_rate": 0.02}}}}
    small = {"seeds": 1, "matrix__objective": {"span": {}}, "matrix__rate": rates, "stages__pretraining__processes": 2}
    small |= {"stages__pretraining__set__run.batch_size": 4, "stages__pretraining__set__run.micro_batch_size": 2}
    options = Study(file=str(write_study(tmp_path, **small)), output=output)
    finish(options)
    (starts,) = Path(output, "stages").glob("pretraining-*/starts.jsonl")
    assert json.loads(starts.read_text())["processes"] == 2
    before = {path: path.stat().st_mtime_ns for path in Path(output, "stages").glob("*/*.json")}
    rates["faster"] = {"tuning": {"set": {"optimizer.learning_rate": 0.04}}}
    write_study(tmp_path, **small)
    run.command(Study(file=options.file, output=output, update=True, dry_run=True))
    assert re.findall(r"^to do +(\w+)-", capsys.readouterr().out, re.MULTILINE) == ["tuning", "predictions"]
    finish(Study(file=options.file, output=output, update=True))
    assert {path: path.stat().st_mtime_ns for path in before} == before


@pytest.mark.slow
def test_only_some_stages(tmp_path):
    path = write_study(tmp_path)
    output = str(tmp_path / "out")
    process = start(Study(file=str(path), output=output, only=("span-slow/corpus",)))
    process.join()
    assert process.exitcode == 0
    made = {place.name.rpartition("-")[0]: place for place in Path(output, "stages").iterdir() if place.is_dir()}
    assert made.keys() == {"tokenizer", "documents", "corpus"}
    assert read_manifest(str(made["corpus"])).format == "farspan.corpus"  # an ordinary artefact
    assert not Path(output, "table.txt").exists()


def table(**changes) -> dict:
    """A table of a baseline and two arms."""
    rows = [
        {"arm": "a", "x": "a", "value": 1.0, "values": [0.5, 1.5], "difference": None, "low": None, "high": None},
        {"arm": "b_2", "x": "b_2", "value": 2.0, "values": [2.0, 2.0], "difference": 1.0, "low": 0.1, "high": 1.9},
        {"arm": "c", "x": "c", "value": 0.5, "values": [0.0, 1.0], "difference": -0.5, "low": -2.0, "high": 1.0},
    ]
    rows = [{**row, "significant": row["arm"] == "b_2", "differences": []} for row in rows]
    best = {"arm": "b_2", "arms": 3, "trials": 6}
    named = {"metric": "predictions.f1", "flavour": "F1", "better": "higher", "seeds": [0, 1], "examples": 50}
    return named | {"baseline": "a", "interval": "95 %", "paired": [], "best": best, "rows": rows} | changes


def test_an_attribute_divides_the_examples(monkeypatch):
    """Each value has the scores of its pairs for every seed; a metric that is no mean of examples is divided, too."""
    rng = np.random.default_rng(0)
    kinds = rng.integers(0, 3, 30)
    references = [[" ".join(rng.choice(WORDS, 6))] for _ in kinds]
    systems = [SimpleNamespace(texts=[" ".join(rng.choice(WORDS, 6)) for _ in kinds]) for _ in range(2)]

    def read(rows: np.ndarray) -> tuple[SimpleNamespace, list[SimpleNamespace]]:
        questions = SimpleNamespace(
            ids=list(rows),
            references=[references[row] for row in rows],
            attributes=lambda _: [str(kinds[r]) for r in rows],
        )
        return questions, [SimpleNamespace(texts=[system.texts[row] for row in rows]) for system in systems]

    steps = [cast("Step", SimpleNamespace(id="x", command=SimpleNamespace(name="generate")))] * 2
    monkeypatch.setattr(table_module, "read_systems", lambda *_: read(np.arange(30)))
    divided = table_module.measure(steps, "rouge:scrolls", "stages", "kind")
    assert list(divided) == ["0", "1", "2"]
    for kind, scores in divided.items():
        rows = np.flatnonzero(kinds == int(kind))
        monkeypatch.setattr(table_module, "read_systems", lambda *_, rows=rows: read(rows))
        alone = table_module.measure(steps, "rouge:scrolls", "stages", "")[""]
        np.testing.assert_allclose(scores, alone)


def test_the_difference_of_two_logged_metrics(tmp_path):
    """The last values count, as for a metric alone."""
    for seed, losses in enumerate([(3.0, 2.5), (4.0, 3.75)]):
        (tmp_path / str(seed)).mkdir()
        lines = [
            {"step": step, "held_out_loss/a": losses[0] + 1 - step, "held_out_loss/b": losses[1]} for step in (0, 1)
        ]
        (tmp_path / str(seed) / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    steps = [cast("Step", SimpleNamespace(id=str(n), command=SimpleNamespace(name="train"))) for n in range(2)]
    measured = table_module.measure(steps, "held_out_loss/b - held_out_loss/a", str(tmp_path), "")[""]
    assert measured.tolist() == [[-0.5], [-0.25]]
    with pytest.raises(FarspanError, match="has no held_out_loss/c"):
        table_module.measure(steps, "held_out_loss/b - held_out_loss/c", str(tmp_path), "")


def test_the_first_warning_of_each_stage_is_printed(tmp_path, capsys):
    (tmp_path / "stages").mkdir()
    logs = {"a-1": "done\n", "a-2": "step 5\nwarning: 9 targets are cut\nwarning: more\n", "a-3": "warning: again\n"}
    for name, text in {**logs, "b-1": "a warning: no\n"}.items():
        (tmp_path / "stages" / f"{name}.log").write_text(text)
    steps = {name: cast("Step", SimpleNamespace(stage=name[0])) for name in ("a-1", "a-2", "a-3", "b-1", "b-2")}
    run.report_warnings(steps, str(tmp_path))
    assert capsys.readouterr().err.splitlines() == [f"{tmp_path}/stages/a-2.log: warning: 9 targets are cut"]


def test_tables_in_all_formats(tmp_path):
    write_tables([table(), table(metric="tuning.held_out_loss", examples=None)], str(tmp_path))
    text, values, rows, latex = ((tmp_path / name).read_text() for name in FILES)
    assert re.findall(r"^(\S+) .*\*$", text, re.MULTILINE) == ["b_2", "b_2"]
    assert "best (higher): b_2, of 3 arms and 6 trials" in text
    assert json.loads(values)[1]["metric"] == "tuning.held_out_loss"
    read = list(csv.DictReader(rows.splitlines()))
    assert [(row["metric"], row["arm"], row["difference"], row["seed 1"]) for row in read[1:4]] == [
        ("predictions.f1", "b_2", "1.0", "2.0"),
        ("predictions.f1", "c", "-0.5", "1.0"),
        ("tuning.held_out_loss", "a", "", "1.5"),
    ]
    assert latex.count(r"b\_2 & 2.00 & $+1.00^{*}$ & $[+0.10, +1.90]$ \\") == 2


def test_a_figure_has_a_panel_a_table_and_a_dot_a_seed(tmp_path):
    draw([table(), table(metric="tuning.held_out_loss")], str(tmp_path / "figure.svg"))
    drawn = (tmp_path / "figure.svg").read_text()
    assert all(f">{title}</text>" in drawn for title in ("predictions.f1", "tuning.held_out_loss", "b_2"))
    dots = [part for part in re.findall(r"<use [^>]*>", drawn) if "fill: #" in part and "fill-opacity: 0.5" in part]
    assert len(dots) == 2 * 3 * 2
    assert "*" not in format_text([table(rows=[{**row, "significant": False} for row in table()["rows"]])])
