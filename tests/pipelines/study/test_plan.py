"""Study files: arms and shared stages, and one line for each study that cannot work."""

from __future__ import annotations

import os

import pytest

from corpora.errors import FarspanError
from pipelines.study.options import Study
from pipelines.study.plan import read_plan
from pipelines.study.run import begin, command
from tests.pipelines.study.tiny_study import STUDY, write_study


def test_arms_share_the_stages_that_are_equal(tmp_path):
    steps = read_plan(str(write_study(tmp_path))).steps().values()
    counts = {name: sum(step.stage == name for step in steps) for name in STUDY["stages"]}
    assert counts == {
        **dict.fromkeys(("tokenizer", "documents", "corpus", "asked", "pairs"), 1),
        "pretraining": 2 * 3,
        "tuning": 4 * 3,
        "predictions": 4 * 3,
    }
    assert [step.level for step in steps] == sorted(step.level for step in steps)


def test_an_identity_depends_on_all_options_and_parents_and_on_nothing_else(tmp_path):
    def ids(**changes):
        return {step.stage: step.id for step in read_plan(str(write_study(tmp_path, **changes))).steps().values()}

    before = ids()
    spelled_out = ids(stages__corpus__seed=0, stages__predictions__beams=None)
    assert spelled_out == before
    longer = ids(stages__corpus__sequence_length=48)
    changed = {stage for stage in before if before[stage] != longer[stage]}
    assert changed == {"corpus", "pretraining", "tuning", "predictions"}
    recipe = tmp_path / "own.toml"
    recipe.write_text('extends = "tiny_block"\n')
    assert ids(stages__tuning__recipe=str(recipe)) == before
    recipe.write_text('extends = "tiny_block"\n[optimizer]\nclip_norm = 2.0\n')
    assert ids(stages__tuning__recipe=str(recipe))["tuning"] != before["tuning"]


def test_the_command_of_a_stage_makes_it_by_hand(tmp_path):
    from pipelines.commands import build_parser

    plan = read_plan(str(write_study(tmp_path)))
    for step in plan.steps().values():
        flags, rest = build_parser().parse_known_args(step.words("stages"))
        assert not rest
        by_hand = flags.chosen.decode(vars(flags))
        assert by_hand == step.command.decode(step.fill("stages"))


def test_excluded_arms_and_patterns(tmp_path):
    path = write_study(tmp_path, exclude=[{"objective": "mixed", "rate": "fast"}], seeds=[7, 9])
    plan = read_plan(str(path))
    assert [arm.name for arm in plan.arms] == ["span-slow", "span-fast", "mixed-slow"]
    some = plan.steps(["mixed-*/pretraining"])
    assert {step.stage for step in some.values()} == {"tokenizer", "documents", "corpus", "pretraining"}
    assert sorted(step.seed for step in some.values() if step.stage == "pretraining") == [7, 9]
    with pytest.raises(FarspanError, match=r"--only mixed-fast/tuning: no such ARM/STAGE \(did you mean"):
        plan.steps(["mixed-fast/tuning"])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"matrix__rate__fast": {}}, "axis 'rate' changes nothing that is compared"),
        ({"exclude": [{"rate": "slow"}]}, "compare.baseline 'span-slow' is excluded"),
        ({"compare__baseline": "span-slo"}, r"is no arm \(did you mean 'span-slow'\?\)"),
        ({"matrix": {"rate": {"slow": {}}}, "compare__baseline": "slow"}, "the study has one arm, slow"),
        ({"exclude": [{"rat": "slow"}]}, r"exclude\[0\] has rat = 'slow', which \[matrix\] lacks"),
        (
            {"matrix__rate__fast": {"predictions": {"split": "train"}}},
            "'span-slow' and 'span-fast' are compared by predictions.rouge:primera on different data: split is 'test'",
        ),
        (
            {"matrix__rate__fast": {"tuning": {"set": {"evaluation": {"every": 3, "split": "train"}}}}},
            "compared by tuning.held_out_loss on different data: split is 'test' and 'train'",
        ),
        ({"stages__tuning__set__evaluation": None}, r"\[stages.tuning\] has no held-out data"),
        (
            {"stages__corpus__command": "corpus randon"},
            r"command is 'corpus randon' \(did you mean 'corpus random'\?\)",
        ),
        ({"stages__corpus__sequence_lenth": 8}, r"no option 'sequence_lenth' \(did you mean 'sequence_length'\?\)"),
        ({"stages__corpus__sequence_length": None}, "lacks sequence_length, which `corpus random` needs"),
        (
            {"stages__corpus__sequence_length": "long"},
            r"\[stages.corpus\] sequence-length is 'long'; a value of type int",
        ),
        ({"stages__corpus__output": "here"}, "has no option 'output', or the study sets it"),
        ({"stages__corpus__processes": 2}, "processes is for train and generate"),
        ({"stages__tuning__set__optimizer.rate": 1.0}, r"has no key 'rate'"),
        (
            {"stages__pretraining__set__data.objective": {"name": "span", "preset": "bart_sl"}},
            "has no preset 'bart_sl'",
        ),
        ({"stages__tuning__set__data.task": {"name": "summary"}}, "summary"),
        ({"stages__tuning__set__run.directory": "here"}, "sets run.directory, which the study chooses"),
        ({"stages__corpus__documents": "{document}"}, r"refers to \{document\}, which is no stage \(did you mean"),
        ({"stages__tokenizer__input": "{pairs}"}, "in a circle: tokenizer -> pairs -> asked -> tokenizer$"),
        ({"matrix__rate__fast": {"tunin": {}}}, r"changes 'tunin', which is no stage \(did you mean 'tuning'\?\)"),
        (
            {"matrix__more": {"a": {"tuning": {"set": {"optimizer.learning_rate": 1.0}}}}},
            "axes 'rate' and 'more' both set",
        ),
        ({"compare__metrics": ["tunin.loss"]}, r"there is no stage 'tunin' \(did you mean 'tuning'\?\)"),
        ({"compare__metrics": ["corpus.tokens"]}, "give STAGE.METRIC, with a stage of `generate`"),
        ({"compare__metrics": ["predictions.rogue"]}, "rogue"),
        ({"compare__by": "kind"}, "compare.by is 'kind', but 'tuning.held_out_loss' has no examples to divide"),
        ({"compare__metrics": ["tuning.held_out_loss"]}, "stage 'predictions' serves no metric"),
        (
            {"stages__pretraining__set__run.seed": 0, "stages__tuning__set__run.seed": 0},
            "seeds 0 and 1 of arm 'span-slow'",
        ),
        ({"seeds": 0}, "seeds is 0; give a number from 1"),
        ({"seed": 3}, r"no key 'seed' \(did you mean 'seeds'\?\)"),
        ({"matrix__rate__very-fast": {}}, "has the name 'very-fast'"),
    ],
)
def test_bad_studies_are_refused_before_any_work(tmp_path, changes, message):
    path = write_study(tmp_path, **changes)
    with pytest.raises(FarspanError, match=message) as raised:
        command(Study(file=str(path), output=str(tmp_path / "out")))
    assert "\n" not in str(raised.value)
    assert not os.path.exists(tmp_path / "out")


def test_a_changed_file_needs_leave(tmp_path):
    output = str(tmp_path / "out")
    begin(read_plan(str(write_study(tmp_path))), output, update=False)
    changed = read_plan(str(write_study(tmp_path, seeds=2)))
    with pytest.raises(
        FarspanError, match=r"study.toml: is not the study that was begun in .*: seeds was 3, is 2; give"
    ):
        begin(changed, output, update=False)
    begin(changed, output, update=True)
    begin(changed, output, update=False)


def test_a_folder_of_something_else_is_refused(tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.tex").write_text("")
    with pytest.raises(FarspanError, match="not empty"):
        begin(read_plan(str(write_study(tmp_path))), str(tmp_path / "out"), update=False)
