"""Finding tasks by name, ours and a third party's; draws of targets."""

import numpy as np
import pytest

from corpora.errors import FarspanError
from objectives.api.protocol import Tools, equip
from objectives.tasks.protocol import (
    NO_TARGET,
    PairFacts,
    Task,
    load_task,
    sample_targets,
    task_of,
)
from objectives.tasks.text_to_text import TextToText
from tests.artefacts import small_tokenizer
from tests.objectives.tasks.pairs import EOS, OWNED, pair_batch
from tests.third_party import install_plugins


def test_a_task_is_found_by_its_name_and_by_a_preset():
    task = load_task("text_to_text", "led", {"global_attention": "query", "separator": "null"})
    assert task == TextToText(middle="<eos>", separator=None, global_attention="query", target_length=255)
    assert isinstance(task, Task)
    assert task_of("bart_ls") == ("text_to_text", "bart_ls")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("text_to_txt",),
            r"no task is called 'text_to_txt' \(did you mean 'text_to_text'\?\); installed: text_to_text",
        ),
        (("text_to_text", "bart"), r"task text_to_text has no preset 'bart' .*its presets: bart_ls, bart_ls_summary, "),
        (("text_to_text", None, {"querry": 1}), r"no option 'querry' \(did you mean 'query'\?\); its options: query, "),
        (
            ("text_to_text", None, {"query": "last"}),
            r"option query is 'last'; give none, first, every_block or decoder",
        ),
        (
            ("text_to_text", None, {"block": 32768, "query": "every_block"}),
            "block is 32768; give at most source_length",
        ),
        (
            ("text_to_text", None, {"query": "none", "global_attention": "query"}),
            "is 'query'; give another rule, or query",
        ),
        (("text_to_text", "led", {"global_attention": "separators"}), "give bos, or separator=<doc-sep> beside it"),
        (("text_to_text", None, {"targets": "all"}), "option targets is 'all'; give each, first or sampled"),
    ],
)
def test_wrong_names_and_options_are_answered_with_the_right_ones(arguments, message):
    with pytest.raises(FarspanError, match=message):
        load_task(*arguments)


def test_a_third_partys_task_is_found_with_options_and_checks(farspan_lead):
    assert task_of("brief") == ("lead_question", "brief")
    task = equip(load_task("lead_question", "brief"), Tools(small_tokenizer()))
    assert isinstance(task, Task)
    assert task.options == {"lead": 2}
    special = task.validate(PairFacts(400, OWNED))
    rendered = task.render(pair_batch([[[9, 8, 7], [6, 5]]], [[4]]), np.array([0]), special)
    assert rendered.examples.source_ids.tolist() == [[9, 8, 6, 5, 400, 4, EOS]]
    assert rendered.cut.documents.tolist() == [1]
    with pytest.raises(FarspanError, match="option lead is 0"):
        load_task("lead_question", None, {"lead": 0})


def test_a_task_that_lacks_a_member_is_one_line(tmp_path, monkeypatch):
    target = "tests.objectives.broken:Sound"
    install_plugins(tmp_path, "broken-tasks", {"farspan.tasks": {"sound": target}})
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(
        FarspanError, match=rf"^task sound: entry point {target} of broken-tasks makes Sound, which lac"
    ):
        load_task("sound")


def test_sampled_targets_are_keyed_by_seed_pair_and_epoch():
    names = [f"pair-{i}" for i in range(3000)]
    counts, epochs = np.arange(3000) % 4, np.zeros(3000, np.int64)
    drawn = sample_targets(3, names, epochs, counts)
    assert (drawn[counts == 0] == NO_TARGET).all()
    assert (drawn < np.maximum(counts, 0)).all()
    some = np.array([2999, 7, 1503])
    assert (sample_targets(3, [names[i] for i in some], epochs[some], counts[some]) == drawn[some]).all()
    for other in (sample_targets(4, names, epochs, counts), sample_targets(3, names, epochs + 1, counts)):
        agree = (other == drawn)[counts == 3].mean()
        assert 0.25 < agree < 0.42  # as often as chance has it
    assert np.abs(np.bincount(drawn[counts == 3]) / 750 - 1 / 3).max() < 0.06
