"""Study files, arms and shared stages; intervals of differences over seeds and examples."""

import os

import numpy as np
import pytest

from corpora.errors import FarspanError
from objectives.metrics.metrics import load_metric
from pipelines.options import Study
from pipelines.study.plan import read_plan
from pipelines.study.run import begin, command
from pipelines.study.table import difference, pseudo_values, quantile
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
    assert ids(stages__corpus__seed=0, stages__predictions__beams=None) == before
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

    for step in read_plan(str(write_study(tmp_path))).steps().values():
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
        ({"stages__corpus__command": "corpus randon"}, r"is 'corpus randon' \(did you mean 'corpus random'\?\)"),
        ({"stages__corpus__sequence_lenth": 8}, r"no option 'sequence_lenth' \(did you mean 'sequence_length'\?\)"),
        ({"stages__corpus__sequence_length": None}, "lacks sequence_length, which `corpus random` needs"),
        ({"stages__corpus__sequence_length": "long"}, r"\[stages.corpus\] sequence-length is 'long'; a value of type"),
        ({"stages__corpus__output": "here"}, "has no option 'output', or the study sets it"),
        ({"stages__corpus__processes": 2}, "processes is for train and generate"),
        ({"stages__tuning__set__optimizer.rate": 1.0}, r"has no key 'rate'"),
        ({"stages__pretraining__set__data.objective": {"name": "span", "preset": "bart"}}, "has no preset 'bart'"),
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
        ({f"stages__{name}__set__run.seed": 0 for name in ("pretraining", "tuning")}, "seeds 0 and 1 of arm 'span-sl"),
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
    with pytest.raises(FarspanError, match=r"study.toml: is not the study that was begun in .*: seeds was 3, is 2;"):
        begin(changed, output, update=False)
    begin(changed, output, update=True)
    begin(changed, output, update=False)


def test_a_folder_of_something_else_is_refused(tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.tex").write_text("")
    with pytest.raises(FarspanError, match="not empty"):
        begin(read_plan(str(write_study(tmp_path))), str(tmp_path / "out"), update=False)


EXAMPLES = 200


@pytest.mark.parametrize(("degrees", "published"), [(1, 12.706), (2, 4.303), (4, 2.776), (9, 2.262), (120, 1.980)])
def test_quantiles_are_those_of_published_tables(degrees, published):
    assert quantile(degrees) == pytest.approx(published, abs=6e-4)


def draw(rng: np.random.Generator, seeds: int, seed_effect: float) -> tuple[np.ndarray, np.ndarray]:
    """Scores of two equal arms, ``(seeds, EXAMPLES)`` each, with effects of seeds, of examples, and both together."""
    common = rng.normal(0, 0.4, EXAMPLES)
    arm, baseline = (
        common
        + rng.normal(0, 0.3, EXAMPLES)
        + rng.normal(0, seed_effect, (seeds, 1))
        + rng.normal(0, 0.5, (seeds, EXAMPLES))
        for _ in range(2)
    )
    return arm, baseline


@pytest.mark.slow
@pytest.mark.parametrize("seed_effect", [0.02, 0.3], ids=["small", "large"])
@pytest.mark.parametrize("seeds", [5, 10])
def test_intervals_hold_what_they_promise(seeds, seed_effect):
    """Two standard deviations of 2,000 draws are .01."""
    rng = np.random.default_rng([seeds, round(100 * seed_effect)])
    intervals = [difference(*draw(rng, seeds, seed_effect)) for _ in range(2000)]
    assert 0.93 <= np.mean([low <= 0 <= high for _, low, high in intervals]) <= 0.97


@pytest.mark.parametrize("seeds", [2, 3, 4])
def test_intervals_over_few_seeds_are_wide_enough(seeds):
    rng = np.random.default_rng(seeds)
    intervals = [difference(*draw(rng, seeds, 0.3)) for _ in range(400)]
    assert np.mean([low <= 0 <= high for _, low, high in intervals]) >= 0.93


def test_scores_without_examples_have_the_t_interval_over_seeds():
    arm, baseline = np.array([[1.0], [2.0], [3.0], [4.0], [6.0]]), np.zeros((5, 1))
    value, low, high = difference(arm, baseline)
    assert value == pytest.approx(3.2)
    assert high - low == pytest.approx(2 * 2.7764 * np.std(arm, ddof=1) / 5**0.5, rel=1e-4)
    assert difference(arm[:1], baseline[:1]) == (1.0, None, None)


def test_pairing_makes_intervals_narrow_where_arms_have_much_in_common():
    rng = np.random.default_rng(0)
    seeds, examples = rng.normal(0, 1, (6, 1)), rng.normal(0, 1, (1, EXAMPLES))
    arm, baseline = (seeds + examples + rng.normal(0, 0.1, (6, EXAMPLES)) for _ in range(2))

    def width(*paired: str) -> float:
        _, low, high = difference(arm, baseline, paired)
        return high - low

    assert width("seed", "example") < 0.1 * min(width("seed"), width("example"))
    assert max(width("seed"), width("example")) < width()


def test_pseudo_values_of_a_mean_are_the_scores_and_of_a_combination_have_its_value():
    f1, rouge = load_metric("f1"), load_metric("rouge:primera")
    texts, references = ["a cat sat", "dogs ran", "lights"], [["the cat sat down"], ["dogs ran off"], ["a lamp"]]
    scores = f1.scores(texts, references)
    assert pseudo_values(f1, scores) == pytest.approx(scores[f1.primary])
    scores = rouge.scores(texts, references)
    assert pseudo_values(rouge, scores).mean() == pytest.approx(rouge.aggregate(scores)[rouge.primary], abs=1e-4)
