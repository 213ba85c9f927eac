"""The training section of a model card."""

from __future__ import annotations

import json
from dataclasses import asdict, replace

from corpora.storage.manifest_file import manifest_sha256
from tests.artefacts import make_corpus
from tests.trainer.toy import toy_recipe
from trainer.checkpoint.run_files import keep_recipe
from trainer.conversion.export.files import training_section
from trainer.data.config import ObjectiveConfig


def test_recipe_data_and_scores(tmp_path):
    corpus = make_corpus(str(tmp_path / "books"))
    recipe = toy_recipe(tmp_path / "run", steps=60)
    data = replace(recipe.data, corpus=corpus, objective=ObjectiveConfig(name="span"))
    keep_recipe(asdict(replace(recipe, data=data)), {}, tmp_path / "run")
    lines = [
        {"step": 30, "held_out_loss": 4.0},
        {"step": 60, "loss": 3.0, "learning_rate": 0.1},
        {"step": 60, "held_out_loss": 3.5},
    ]
    (tmp_path / "run" / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (tmp_path / "run" / "starts.jsonl").write_text('{"step": 0, "recipe": "tiny"}\n')
    text = training_section(tmp_path / "run")
    assert "Recipe `tiny`: 60 updates of 6 sequences" in text
    assert f"| `books`, span | `{manifest_sha256(corpus)}` |" in text
    assert "| held_out_loss | 3.5000 | 60 |" in text
    assert "3.0000" not in text
    assert str(tmp_path) not in text
    assert training_section(tmp_path / "run" / "checkpoints" / "step-00000060") == text


def test_another_model_has_none(tmp_path):
    (tmp_path / "a" / "b").mkdir(parents=True)
    assert training_section(tmp_path / "a" / "b") == ""
