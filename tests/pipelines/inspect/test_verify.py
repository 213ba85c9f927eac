"""Checkpoints of a run are checked as artefacts are."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from pipelines.inspect.verify import verify
from tests.trainer.toy import ToySource, toy_recipe
from trainer.run.train import train


def test_a_run_and_its_checkpoints(tmp_path):
    recipe = toy_recipe(tmp_path / "run", steps=8, checkpoint_every=4)
    train(recipe, source=ToySource())
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
