"""Checks of a run's data before its first update, and its records and display."""

import gzip
import json
import shutil
import sys
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from corpora.errors import FarspanError
from corpora.reporting import Silence
from corpora.schemas.corpus import Corpus
from objectives.api.special_tokens import SpecialTokens, is_sentinel
from tests.artefacts import make_corpus
from tests.trainer.distributed_ranks import on_ranks
from tests.trainer.toy import ToySource, toy_recipe, train_quietly
from trainer.checkpoint.run_files import read_lines
from trainer.data.config import DataConfig, ObjectiveConfig, SourceConfig
from trainer.data.curriculum import StageConfig
from trainer.data.loader import LoadingConfig
from trainer.data.mixture import Mixture, Part
from trainer.model.build import build_model
from trainer.parallel.distributed import World
from trainer.recipe import Recipe
from trainer.run import startup
from trainer.run.display import Display
from trainer.run.evaluation import open_held_out
from trainer.run.logs import MetricsLog, model_summary
from trainer.run.startup import check_shards, list_warnings
from trainer.run.units import open_unit
from trainer.run.units.single import Seq2SeqUnit
from trainer.run_config import EvaluationConfig


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> Path:
    return Path(make_corpus(str(tmp_path_factory.mktemp("opening") / "corpus"), documents=30, room_per_document=2))


def recipe_on(directory: Path, corpus: object, held_out: object, verify: Any):
    objective = ObjectiveConfig(name="span")
    return replace(
        toy_recipe(directory, steps=5, positions=(192, 128)),
        data=DataConfig(corpus=str(corpus), objective=objective, source_length=192, target_length=128),
        evaluation=EvaluationConfig(corpus=str(held_out)),
        loading=LoadingConfig() if verify is None else LoadingConfig(verify=verify),
    )


def damaged_copy(corpus: Path, folder: Path) -> Path:
    """With another token in the first row: it can be read and trained on, but is not what was written."""
    shutil.copytree(corpus, folder)
    opened = Corpus(str(corpus))
    shard = Path(str(folder), "shards", opened.manifest.shards[0].name)
    data = bytearray(shard.read_bytes())
    tokens = opened.take(np.arange(1)).tokens.values[:12].astype(np.uint16).tobytes()
    assert data.count(tokens) == 1
    data[data.index(tokens)] ^= 1
    shard.write_bytes(data)
    return folder


@pytest.fixture(params=["data", "held out"])
def folders(request, tmp_path, corpus) -> tuple[Path, Path]:
    """Corpora to train and to evaluate on, of which one is damaged: ``tmp_path / "damaged"``."""
    folders = damaged_copy(corpus, tmp_path / "damaged"), corpus
    return folders if request.param == "data" else folders[::-1]


@pytest.mark.parametrize("verify", ["start", "lazily"])
def test_a_damaged_shard_ends_the_run_before_it_begins(tmp_path, folders, verify, monkeypatch):
    """With ``start`` before a row is read."""
    recipe = recipe_on(tmp_path / "run", folders[0], folders[1], verify)
    if verify == "start":
        monkeypatch.setattr(Corpus, "take", lambda *_: pytest.fail("a row is read"))
    with pytest.raises(FarspanError, match=rf"{tmp_path}/damaged/shards/\S+: .*sha256"):
        train_quietly(recipe)
    assert not (tmp_path / "run").exists()


def test_shards_are_compared_at_the_start_by_default(tmp_path, corpus, monkeypatch):
    compared: list[str] = []
    monkeypatch.setattr(startup, "check_shards", lambda sources, *_: compared.extend(each.corpus for each in sources))
    train_quietly(recipe_on(tmp_path / "run", corpus, corpus, None), until=1)
    assert compared == [str(corpus), str(corpus)]


def test_who_asks_for_no_check_gets_none(tmp_path, corpus):
    damaged = damaged_copy(corpus, tmp_path / "damaged")
    assert train_quietly(recipe_on(tmp_path / "run", damaged, damaged, "never")).finished


def _check(world: World, recipe: Recipe) -> str:
    with pytest.raises(FarspanError) as error:
        check_shards([*recipe.data.sources, *recipe.held_out_data.sources], world, Console(quiet=True))
    return str(error.value)


def test_what_one_rank_finds_damaged_all_ranks_report(tmp_path, folders):
    first, second = on_ranks(2, _check, recipe_on(tmp_path / "run", folders[0], folders[1], "start"))
    assert first == second
    assert "sha256" in first
    assert str(tmp_path / "damaged") in first


A, B, ONE = Part("a", ToySource(20)), Part("b", ToySource(20)), Part("data", ToySource(20))


@pytest.mark.parametrize(
    ("parts", "others", "seed", "said"),
    [
        ([A, B], [B, A], 42, r"sources: checkpoint \[\['a', 'b'\]\], now \[\['b', 'a'\]\]"),
        ([ONE], [Part("data", ToySource(21))], 42, "corpus.data.sequences: checkpoint 20, now 21"),
        ([ONE], [replace(ONE, weight=2.0)], 42, "corpus.data.weight: checkpoint 1.0, now 2.0"),
        ([ONE], [Part("data", ToySource(20, fingerprint="x"))], 42, "data.fingerprint: checkpoint 'toy', now 'x'"),
        ([ONE], [ONE], 1, "run.seed: checkpoint 42, now 1"),
    ],
)
def test_other_data_or_another_recipe_is_another_run(tmp_path, parts, others, seed, said):
    recipe = toy_recipe(tmp_path, steps=5)
    train_quietly(recipe, source=Mixture(parts), until=1)
    with pytest.raises(FarspanError, match=said):
        train_quietly(replace(recipe, run=replace(recipe.run, seed=seed)), source=Mixture(others))
    assert train_quietly(recipe, source=Mixture(parts), until=2).step == 2


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"decoder_start": "<start>"}, r"data: data.decoder_start is '<start>', but the special tokens are .*<eos>"),
        ({"masks": ""}, r"data: masks is ''; name the folder of a mask set"),
        ({"corpus": ""}, r"data: corpus is not set; .* --set data.corpus=FOLDER"),
        ({"corpus": "nowhere"}, r"data: nowhere: no farspan artefact"),
        ({"objective": ObjectiveConfig(name="cross_document")}, r"data: the objective has labels at masked tokens"),
    ],
)
def test_bad_data_is_told_by_the_section_that_names_it(tmp_path, corpus, changes, said):
    recipe = recipe_on(tmp_path, corpus, corpus, "never")
    data = replace(recipe.data, **changes)
    with pytest.raises(FarspanError, match=rf"^{said}"):
        open_unit(replace(recipe, data=data))
    with pytest.raises(FarspanError, match=rf"^stages\[1\]\.{said.replace('--set data.', '--set .*.data.')}"):
        open_unit(replace(recipe, stages=(StageConfig(steps=2), StageConfig(steps=3, data=data))))


@pytest.mark.parametrize(
    ("section", "said"),
    [
        ({}, r"evaluation: corpus is not set; .* --set evaluation.corpus=FOLDER"),
        ({"corpus": "nowhere"}, r"evaluation: nowhere: no farspan artefact"),
        ({"mixture": (SourceConfig(name="x", corpus="no", masks="m"),)}, r"source 'x' of evaluation.mixture: no: no f"),
    ],
)
def test_bad_held_out_data_is_told_as_such(tmp_path, corpus, section, said):
    recipe = replace(recipe_on(tmp_path, corpus, corpus, "never"), evaluation=EvaluationConfig(**section))
    with pytest.raises(FarspanError, match=f"^{said}"):
        open_held_out(open_unit(recipe))


def test_held_out_masks_that_need_more_sentinels_than_the_model_has_are_found_before_the_first_step(tmp_path, corpus):
    recipe = recipe_on(tmp_path, corpus, corpus, "never")
    spans = open_unit(recipe).mixtures[0]
    without = {name: number for name, number in spans.special.ids.items() if not is_sentinel(name)}
    unit = Seq2SeqUnit(recipe, [spans.with_special(SpecialTokens(without, spans.special.vocab_size))])
    with pytest.raises(FarspanError, match=r"^evaluation: sequence \w+ needs \d+ sentinels"):
        open_held_out(unit)


def test_a_corpus_that_was_copied_without_its_tokenizer_is_told_so(tmp_path, corpus):
    shutil.copytree(corpus, tmp_path / "copy", ignore=lambda folder, names: {"tokenizer"} & set(names))
    recipe = recipe_on(tmp_path, tmp_path / "copy", corpus, "never")
    recipe = replace(recipe, data=replace(recipe.data, objective=ObjectiveConfig(name="principal_sentences")))
    with pytest.raises(FarspanError, match=r"copy/tokenizer/\S+: No such file or directory; copy the"):
        open_unit(recipe)


@pytest.mark.parametrize(("steps", "passes"), [(12, None), (13, "1.1")])
def test_a_run_that_repeats_its_corpus_says_so(steps, passes):
    recipe = toy_recipe("none", steps=steps, batch_size=5)
    unit = Seq2SeqUnit(recipe, [Mixture([Part("a", ToySource(size=15)), Part("b", ToySource(size=45), weight=3.0)])])
    said = list(list_warnings(unit, None))
    assert len(said) == (2 if passes else 0)
    assert all(f"{passes} times" in line for line in said)
    assert not said or "'a'" in said[0]


def test_an_unfinished_run_as_initial_model_is_named(tmp_path):
    (tmp_path / "recipe.json").write_text("{}")
    recipe = toy_recipe("none", steps=5)
    unit = Seq2SeqUnit(replace(recipe, run=replace(recipe.run, initial_model=str(tmp_path))), [Mixture.of(ToySource())])
    assert [line for line in list_warnings(unit, None) if f"{tmp_path} is an unfinished run" in line]
    (tmp_path / "summary.json").write_text("{}")
    assert not [line for line in list_warnings(unit, None) if "unfinished" in line]


RECORD = {"step": 1, "loss": 2.5, "learning_rate": 1e-4, "source_tokens_per_second": 1234.5, "seconds": 0.5}


def test_tensorboard_has_the_numbers_of_the_file(tmp_path):
    event_accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    logs = MetricsLog(tmp_path, 0, tensorboard=True)
    for step, loss in ((1, 3.0), (2, None), (3, 2.0), (4, 7.0)):
        logs.write({**RECORD, "step": step, "loss": loss})
    logs.close()
    MetricsLog(tmp_path, 3, tensorboard=True).close()  # the run goes on after step 3
    events = event_accumulator.EventAccumulator(str(tmp_path))
    events.Reload()
    assert [(event.step, event.value) for event in events.Scalars("loss")] == [(1, 3.0), (3, 2.0)]
    assert len((tmp_path / "metrics.jsonl").read_text().splitlines()) == 3


def test_tensorboard_that_is_not_installed_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(FarspanError, match=r"farspan\[tracking\]"):
        MetricsLog(tmp_path, 0, tensorboard=True)


def test_lines_that_say_no_step_are_dropped(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b'{"step": 1}\n[1]\n5\n{"a": 1}\n{"step": "x"}\n\xff\n{"step": 2}\n{"step": 3}\n{"st')
    MetricsLog(tmp_path, 2).close()
    assert list(read_lines(path)) == [{"step": 1}, {"step": 2}]


def test_a_full_disk_names_the_file(tmp_path):
    full = MetricsLog(tmp_path, 0)
    full._file = open("/dev/full", "wb", buffering=0)
    with pytest.raises(FarspanError, match=r"metrics.jsonl cannot be written to \(.*No space left.*make room"):
        full.write({"step": 1})
    full.close()


def test_starts_and_the_summary_of_a_finished_run(tmp_path: Path):
    recipe = toy_recipe(tmp_path, steps=6)
    train_quietly(recipe, source=ToySource(), until=2, name="toy")
    assert not (tmp_path / "summary.json").exists()
    train_quietly(recipe, source=ToySource())
    first, second = read_lines(tmp_path / "starts.jsonl")
    assert (first["recipe"], first["step"], first["steps"], first["processes"]) == ("toy", 0, 6, 1)
    assert second["step"] == 2
    assert {"farspan", "python", "torch"} <= first["versions"].keys()
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["memory_gib"]["expected"] > 0
    assert summary["memory_gib"]["measured"] > 0


def test_parameters_by_part_add_up():
    recipe = toy_recipe("unused")
    model = build_model(recipe.model, 25, 0)
    found = model_summary(recipe.model, recipe.data, model, 25)["parameters"]
    assert found["total"] == sum(parameter.numel() for parameter in model.parameters())
    assert found["total"] == sum(number for name, number in found.items() if name != "total")
    assert found["tokens"] == 25 * recipe.model.width


def test_a_trace_and_a_table_of_ten_operations(tmp_path):
    train_quietly(toy_recipe(tmp_path, steps=6, profile=(2, 3), dry_run=False), source=ToySource())
    trace = json.loads(gzip.decompress((tmp_path / "profile" / "trace-0.json.gz").read_bytes()))
    names = [event.get("name", "") for event in trace["traceEvents"]]
    assert sum(name.startswith("Optimizer.step") for name in names) == 2  # of six updates
    table = (tmp_path / "profile" / "operations-0.txt").read_text().splitlines()
    assert sum("aten::" in line for line in table) in range(3, 11)


@pytest.mark.parametrize("updates", [(3,), (0, 2), (5, 4), (1, 2, 3)])
def test_other_numbers_are_refused(updates: tuple[int, ...]):
    with pytest.raises(FarspanError, match=r"run\.profile is \["):
        toy_recipe("unused", profile=updates)


def show(terminal: bool, log_every: int, records, steps: int = 3, **options) -> str:
    screen = StringIO()
    console = Console(file=screen, force_terminal=terminal, highlight=False, **{"width": 200, **options})
    with Display(log_every, console) as display:
        display.begin(steps)
        for record in records:
            display.update(record)
    return screen.getvalue()


def test_plain_lines_come_every_few_steps_and_at_the_end():
    assert show(False, 2, [{**RECORD, "step": step} for step in (1, 2, 3)]).splitlines() == [
        "step 2/3  loss 2.5000  lr 1.00e-04  1,234 source tokens/s  0.50 s/update  0:00:01 left",
        "step 3/3  loss 2.5000  lr 1.00e-04  1,234 source tokens/s  0.50 s/update",
    ]


def test_a_run_that_is_silent_says_what_it_does(clock):
    screen = StringIO()
    display = Display(100, Console(file=screen, width=200))
    display.silence = Silence(display._tell, clock)
    for clock.now in (1.0, 2.0, 3.0, 33.0):
        display.silence.look()
    display.begin(300)
    for step, clock.now in ((0, 64.0), (1, 65.0), (2, 95.0), (2, 120.0), (2, 125.0)):
        if step and clock.now < 100:
            display.update({**RECORD, "step": step})
        display.silence.look()
    assert [line.split("  ")[0] for line in screen.getvalue().splitlines()] == [
        *("prepares the run", "prepares the run", "at work on the next update"),
        *("step 2/300", "at work on the next update"),
    ]


def test_a_line_says_what_matters_now():
    record = {**RECORD, "mfu": 0.523, "data_wait_share": 0.27, "source_padding_share": 0.121}
    assert "  52.3% of peak  12% padding  27% waiting for data  0.50 s" in show(False, 1, [record])
    assert "padding" not in show(False, 1, [{**record, "source_padding_share": 0.04}])
    assert "waiting" not in show(False, 1, [{**record, "data_wait_share": 0.01}])
    assert "peak" not in show(False, 1, [{**record, "mfu": None}])


@pytest.mark.parametrize(
    ("seconds", "steps", "end"),
    [
        ([60, 1, 1], 123, "1.00 s/update  0:02:00 left\n"),
        ([10] * 99 + [2] * 100, 1099, "2.00 s/update  0:30:00 left\n"),
    ],
)
def test_the_time_left_is_that_of_the_latest_updates_without_the_first_which_compiles(seconds, steps, end):
    records = [{**RECORD, "step": step, "seconds": float(each)} for step, each in enumerate(seconds, 1)]
    assert show(False, len(seconds), records, steps=steps).endswith(end)


def test_a_terminal_has_a_bar():
    said = show(True, 1, [{**RECORD, "step": 3}])
    assert "step 3/3" in said
    assert "loss 2.5000" in said


@pytest.mark.parametrize("width", [60, 80, 120])
def test_a_narrow_terminal_shows_what_matters_first_and_nothing_cut(width):
    record = {**RECORD, "step": 2, "mfu": 0.5, "data_wait_share": 0.3, "source_padding_share": 0.2}
    said = show(True, 1, [record], steps=10_000, width=width)
    assert "step 2/10000" in said
    assert "loss 2.5000  1:23:19 left" in said
    assert "…" not in said
    assert ("% of peak" in said) == (width == 120)


def test_a_skipped_update_is_called_so_and_a_quiet_console_shows_nothing():
    assert "skipped  lr" in show(False, 1, [{**RECORD, "loss": None}])
    assert show(False, 1, [RECORD], quiet=True) == ""
