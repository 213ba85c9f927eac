"""docs/howto/base_model.md: its commands on one meeting and a model of width 32."""

from __future__ import annotations

import re
import shlex
from dataclasses import replace
from pathlib import Path

from objectives.api.special_tokens import SpecialTokens
from pipelines.commands import build_parser
from pipelines.execute import run
from tests.artefacts import small_tokenizer
from tests.farspan.integration.test_datasets_page import RECORDS
from tests.trainer.conversion.models import tiny_model
from trainer.conversion.model_folder import write_model_folder
from trainer.conversion.vocabulary import Vocabulary
from trainer.recipe import load_recipe, read_recipe

PAGE = (Path(__file__).parents[3] / "docs/howto/base_model.md").read_text("utf-8")
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
    for command in "".join(re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)).splitlines():
        flag = "--generation" if "generate" in command else "--set"
        words = QUICK.get(" ".join(command.split()[:2]), "")
        quick = [part for word in words.split() for part in (flag, word)]
        flags, rest = build_parser().parse_known_args([*shlex.split(command)[1:], *quick])
        run(flags.chosen, vars(flags), rest)
    recipe = read_recipe(tmp_path / "runs/bart_ls_qmsum")
    assert recipe is not None
    assert recipe.model == replace(small, dropout=0.1, attention_dropout=0.1)  # the paper's dropouts
    assert "rouge/rougeL" in capsys.readouterr().out
