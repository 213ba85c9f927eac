"""The files of a run are checked as artefacts are."""

import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from corpora.errors import FarspanError
from pipelines.inspect.verify import verify
from tests.artefacts import make_corpus
from tests.trainer.toy import ToySource, toy_recipe
from trainer.conversion.convert import convert
from trainer.data.config import DataConfig, ObjectiveConfig
from trainer.model.positions import Learned
from trainer.options import Conversion
from trainer.prediction.setup import open_model
from trainer.recipe import read_recipe
from trainer.run.train import train
from trainer.run_config import EvaluationConfig


def test_a_run_and_its_checkpoints(tmp_path):
    train(toy_recipe(tmp_path / "run", steps=8, checkpoint_every=4), source=ToySource())
    first, last = sorted((tmp_path / "run" / "checkpoints").glob("step-*"))
    assert [verify(folder) for folder in (tmp_path / "run", first, last)] == [[], [], []]
    (file,) = (first / "model").glob("*.safetensors")
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    said = f"{first.name}: {file.name} has another sha256 than the manifest"
    assert verify(str(tmp_path / "run")) == verify(str(first)) == [said]
    assert verify(str(last)) == []


def test_it_needs_no_torch():
    code = "import sys, pipelines.inspect.verify; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parents[3]).returncode == 0


DAMAGES = {
    "flipped": lambda data: data[: len(data) // 2] + bytes([data[len(data) // 2] ^ 1]) + data[len(data) // 2 + 1 :],
    "cut": lambda data: data[: len(data) * 2 // 3],
    "emptied": lambda data: b"",
    "gone": None,
}
STEP = "checkpoints/step-00000005"
FILES = ["tokenizer/special_tokens_map.json", "tokenizer/tokenizer.json", "recipe.json", "starts.jsonl",
         "metrics.jsonl", "summary.json", "checkpoints/run.json", "checkpoints/best.json", f"{STEP}/checkpoint.json",
         f"{STEP}/model/*", f"{STEP}/optimizer/*"]  # fmt: skip
CASES = [(file, damage) for file in FILES for damage in DAMAGES
         if (file, damage) not in [("summary.json", "gone"), ("checkpoints/best.json", "gone")]]  # fmt: skip


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    """A run on a corpus, with a tokenizer, evaluations and a summary."""
    folder = tmp_path_factory.mktemp("finished")
    corpus = make_corpus(str(folder / "corpus"))
    toy = toy_recipe(folder / "run", steps=5, checkpoint_every=2, batch_size=2)
    model = replace(
        toy.model,
        encoder=replace(toy.model.encoder, positions=Learned(2048)),
        decoder=replace(toy.model.decoder, positions=Learned(2048)),
    )
    data = DataConfig(corpus=corpus, objective=ObjectiveConfig(name="span"), source_length=2048, target_length=2048)
    evaluation = EvaluationConfig(corpus=corpus, every=2, sequences=2)
    checkpoint = replace(toy.checkpoint, best="held_out_loss")
    train(replace(toy, model=model, data=data, evaluation=evaluation, checkpoint=checkpoint))
    return folder / "run"


def damage(run: Path, name: str, how: str) -> None:
    (file,) = run.glob(name)
    data, change = file.read_bytes(), DAMAGES[how]
    file.unlink() if change is None else file.write_bytes(change(data))


@pytest.mark.parametrize(("name", "how"), CASES, ids=[f"{name} {how}" for name, how in CASES])
def test_every_damaged_file_of_a_run_is_named(finished, tmp_path, name, how):
    run = Path(shutil.copytree(finished, tmp_path / "run"))
    assert verify(run) == []
    damage(run, name, how)
    assert verify(run)
    assert Path(name.replace("/*", "")).parts[-1].split(".")[0] in str(verify(run)) or "step-00000005" in name


@pytest.mark.parametrize("name", ["tokenizer.json", "special_tokens_map.json"])
def test_a_changed_tokenizer_is_refused(finished, tmp_path, name):
    run = Path(shutil.copytree(finished, tmp_path / "run"))
    file = run / "tokenizer" / name
    text = file.read_text()
    if name == "tokenizer.json":
        values = json.loads(text)
        pieces = values["model"]["vocab"]
        one, other = list(pieces)[-2:]
        pieces[one], pieces[other] = pieces[other], pieces[one]
        text = json.dumps(values)
    file.write_text(text + " ")
    output = tmp_path / "model"
    with pytest.raises(FarspanError, match=f"tokenizer/{name} differs from its checksum; copy the run again"):
        convert(run, output, Conversion())
    with pytest.raises(FarspanError, match=f"tokenizer/{name} differs"):
        open_model(run)
    again = replace(read_recipe(run), run=replace(read_recipe(run).run, initial_model=str(run), directory=str(output)))
    with pytest.raises(FarspanError, match=f"tokenizer/{name} differs"):
        train(again)
    assert not (output / "recipe.json").exists()


def test_data_whose_tokenizer_was_exchanged_is_refused(finished, tmp_path):
    recipe = read_recipe(finished)
    corpus = shutil.copytree(recipe.data.corpus, tmp_path / "corpus")
    run = Path(shutil.copytree(finished, tmp_path / "run"))
    values = json.loads((corpus / "tokenizer/tokenizer.json").read_text())
    pieces = values["model"]["vocab"]
    one, other = list(pieces)[-2:]
    pieces[one], pieces[other] = pieces[other], pieces[one]
    (corpus / "tokenizer/tokenizer.json").write_text(json.dumps(values))
    recipe = replace(recipe, data=replace(recipe.data, corpus=str(corpus)), run=replace(recipe.run, directory=str(run)))
    with pytest.raises(FarspanError, match=r"corpus/tokenizer/tokenizer.json: sha256"):
        train(recipe)
    assert verify(run) == []


def test_a_run_that_was_killed_in_a_line_is_sound(finished, tmp_path):
    run = Path(shutil.copytree(finished, tmp_path / "run"))
    with (run / "metrics.jsonl").open("ab") as file:
        file.write(b'{"step": 6, "lo')
    assert verify(run) == []
