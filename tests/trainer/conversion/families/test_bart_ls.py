"""Tests of exported BART-LS: the modelling file in a process without farspan, and the way back."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from corpora.errors import FarspanError
from tests.trainer.conversion.models import loaded, text, tiny_config, tiny_model, tokenizer_files
from trainer.conversion.export import modeling_bart_ls
from trainer.conversion.hugging_face import read_hugging_face, write_hugging_face
from trainer.model.config import DecoderConfig, EncoderConfig
from trainer.model.layers.pooled import Pooling
from trainer.model.patterns.block import Block
from trainer.model.patterns.block_global import BlockGlobal
from trainer.model.patterns.overlap import Overlap
from trainer.model.positions import Learned

ROWS = {"short": [1], "less than a block": [5, 3], "a block": [8, 8], "several blocks": [40, 31, 9], "padding": [25, 1]}


def model_of(pattern, pooling=Pooling(2, 6, 4, 3)):  # noqa: B008 - frozen
    config = tiny_config(EncoderConfig(layers=3, positions=Learned(40), attention=pattern, pooling=pooling))
    return replace(tiny_model(replace(config, decoder=DecoderConfig(layers=1, positions=Learned(16)))),
                   tokenizer=tokenizer_files())  # fmt: skip


@pytest.mark.parametrize("model", [model_of(Block(8)), model_of(Overlap(8), None)], ids=["pooled", "overlap"])
def test_transformers_alone_computes_generates_and_trains_the_same_model(model, tmp_path):
    write_hugging_face(model, tmp_path / "out")
    results, ours = {}, loaded(model)
    for name, lengths in ROWS.items():
        (ids, real), (target, _) = text(lengths, high=23), text([5] * len(lengths), seed=1, high=23)
        with torch.no_grad():
            logits = ours.logits(ours.decode(target, ours.encode(ids, None if real.all() else real)))
        parts = {"ids": ids, "mask": real.long(), "target": target, "logits": logits}
        results |= {f"{name}.{part}": tensor for part, tensor in parts.items()}
    save_file(results, tmp_path / "results")
    script = Path(__file__).with_name("bart_ls_alone.py")
    command = [sys.executable, "-I", script, tmp_path / "out", tmp_path / "results", tmp_path / "saved"]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_MODULES_CACHE": str(tmp_path / "modules")}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]

    for folder in ("out", "saved"):  # read without running the file, which may be anything
        (tmp_path / folder / "modeling_bart_ls.py").write_text("raise SystemExit")
        again = read_hugging_face(tmp_path / folder)
        assert again.config == model.config
        assert all(torch.equal(again.state[name], tensor) for name, tensor in model.state.items())


def test_the_card_names_the_file_and_advises_a_revision(tmp_path):
    write_hugging_face(model_of(Block(8)), tmp_path / "out")
    code = (tmp_path / "out/modeling_bart_ls.py").read_bytes()
    assert code == Path(modeling_bart_ls.__file__).read_bytes()
    card = (tmp_path / "out/README.md").read_text()
    assert sha256(code).hexdigest() in card
    assert "trust_remote_code=True" in card
    assert "revision=" in card
    config = json.loads((tmp_path / "out/config.json").read_text())
    assert {name.partition(".")[0] for name in config["auto_map"].values()} == {"modeling_bart_ls"}


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (model_of(BlockGlobal(8, 2)), "attention pattern 'block_global'"),
        (model_of(Block(8), Pooling(reference_padding=True, layers=1)), "reference_padding"),
    ],
)
def test_what_the_file_cannot_compute_is_refused(model, message, tmp_path):
    with pytest.raises(FarspanError, match=message):
        write_hugging_face(model, tmp_path / "out")
    assert not list(tmp_path.iterdir())
