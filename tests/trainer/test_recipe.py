from dataclasses import asdict, fields, replace

import pytest

from corpora.errors import FarspanError
from tests.trainer.toy import toy_recipe
from trainer.checkpoint.run_files import RECIPE, keep_recipe
from trainer.data.curriculum import stage_number
from trainer.model.config import GeneratorConfig
from trainer.model.loss import LossConfig
from trainer.model.patterns.full import Full
from trainer.recipe import load_recipe, read_recipe
from trainer.recipe_files import summaries


def test_values_are_overridden():
    recipe = load_recipe(
        "tiny",
        [
            "run.steps=70", "optimizer.learning_rate=1", "data.corpus=some/folder", "optimizer.betas=[0.8, 0.9]",
            'model.encoder.attention={pattern="full"}', "model.encoder.pooling=none",
            "data.objective.name=span", "data.objective.options={density=0.1}", "evaluation.every=5",
            "data.objective.options.separator=null", "data.objective.preset=null",
        ],
    )  # fmt: skip
    assert (recipe.run.steps, recipe.optimizer.learning_rate, recipe.data.corpus) == (70, 1.0, "some/folder")
    assert recipe.optimizer.betas == (0.8, 0.9)
    assert recipe.model.encoder.attention == Full()
    assert recipe.model.encoder.pooling is None
    assert recipe.data.objective.options == {"density": 0.1, "separator": None}
    assert recipe.data.objective.preset is None
    assert recipe.evaluation.every == 5


AT_LEAST_ONE = {
    "run": ("steps", "tokens", "batch_size", "micro_batch_size", "max_skipped"),
    "evaluation": ("every", "sequences", "patience"),
    "generation": ("every", "limit", "batch_positions", "beams"),
}


@pytest.mark.parametrize(
    ("assignment", "said"),
    [
        ("run.stepz=7", r"tiny.toml: \[run\] has no key 'stepz' \(did you mean 'steps'\?\)"),
        ("modle.width=7", r"tiny.toml has no key 'modle' \(did you mean 'model'\?\)"),
        ("learning_rate=1", r"tiny.toml has no key 'learning_rate' \(did you mean 'optimizer.learning_rate'\?\)"),
        ("model.encoder.pooling.kernle=7", r"\[model.encoder.pooling\] has no key 'kernle' \(did you mean 'kernel'"),
        ("run.steps=7.5", r"run.steps is 7.5; a value of type int is needed"),
        ("run.steps=null", r"run: none of steps, epochs, tokens is set; give one of them"),
        ("run={directory='r', batch_size=2, steps=2, epochs=1}", r"run: steps and epochs are set; give one of"),
        ("run.epochs=0", r"run.epochs is 0.0; it must be above 0 and finite"),
        ("run.extend=[30, 0]", r"run.extend is \[30, 0\]; each number of updates must be at least 1"),
        ("generator={initial='x'}\ndata.pairs=p", "generator chooses what to hide in a corpus, but the data are pairs"),
        ("data={pairs='p', corpus='c', source_length=512}", r"data.pairs conflicts with data.corpus"),
        ("evaluation={pairs='p', corpus='c'}", r"evaluation.pairs conflicts with evaluation.corpus or masks"),
        ("run.steps=true", r"run.steps is True; a value of type int is needed"),
        ("run.directory=7", r"run.directory is 7; a value of type str is needed"),
        ("model.norm.placement=between", r"model.norm.placement is 'between'; choose one of 'post', 'pre'"),
        ("model.encoder.attention.pattern=blok", r"attention.pattern is 'blok' \(did you mean 'block'\?\)"),
        ("optimizer.betas=[0.9]", r"optimizer.betas is \[0.9\]; a list of 2 values"),
        ("optimizer.learning_rate=nan", r"tiny.toml: optimizer.learning_rate is nan; a number is needed"),
        ("optimizer.betas=[0.9, nan]", r"optimizer.betas\[1\] is nan; a number is needed"),
        ("optimizer.learning_rate=inf", r"optimizer.learning_rate is inf; it must be above 0 and finite"),
        ("optimizer.weight_decay=inf", r"weight_decay inf and .* finite"),
        (f"optimizer.eps={10**400}", r"eps inf must be above 0.* finite"),
        ("schedule.power=inf", r"power inf must be at least 0 and finite"),
        ("stages=[{steps=60, learning_rate=inf}]", r"stages: learning_rate is inf; it must be above 0 and finite"),
        ("generator={initial='x', weight=inf}", r"generator.weight is inf; .* finite"),
        ("stages={steps=60}", r"stages is {'steps': 60}; a list of tables is needed"),
        ("data.mixture=both", r"data.mixture is 'both'; a list of tables is needed"),
        ("model.decoder.cross_attention=[0, 1.5]", r"model.decoder.cross_attention\[1\] is 1.5; a value of type int"),
        ("stages=[{steps=20}, {steps=40, micro_batch_size='2'}]", r"stages\[1\].micro_batch_size is '2'; a value of"),
        ("stages=[{steps=20}, {batch_size=2}]", r"stages: neither steps nor tokens is set; give each stage one"),
        ("model.encoder=7", r"\[model.encoder\] is 7; a table is needed"),
        ("data.objective={}", r"\[data.objective\] lacks name; add what is missing"),
        ("model.heads.count=5", r"tiny.toml: model.heads.count is 5 and does not divide"),
        ("data.source_length=8192", r"data.source_length is 8192, but model.encoder.positions.count is 4096"),
        ("schedule.warmup_steps=61", r"schedule.warmup_steps is 61, but run.steps is 60"),
        ("run.steps", r"--set run.steps: give KEY=VALUE"),
        ("run.directory=''", r"run.directory is ''; name a folder"),
        ("evaluation={corpus='c', mixture=[{name='a', corpus='d'}]}", "evaluation.mixture conflicts with evaluation.c"),
        (
            "evaluation.mixture=[{name='a', corpus='c'}, {name='a', corpus='d'}]",
            r"evaluation.mixture: the names of the sources are 'a', 'a'; give each its own",
        ),
        ("data.mixture=[{name='', corpus='c'}]", r"data.mixture: the names of the sources are ''; give each"),
        *((f"run.{name}=0", rf"run.{name} is 0; it must be at least 1") for name in AT_LEAST_ONE["run"]),
        *((f"evaluation.{name}=0", rf"evaluation.{name} is 0; it must") for name in AT_LEAST_ONE["evaluation"]),
        *(
            (f"evaluation.generation={{metrics='f1', {name}=0}}", rf"generation.{name} is 0; it must be at least 1")
            for name in AT_LEAST_ONE["generation"]
        ),
        ("run.epochs=inf", r"run.epochs is inf"),
        ("parallel.shard_size=0", r"parallel.shard_size is 0; it must be at least 1"),
        (
            "evaluation={pairs='p', mixture=[{name='a', corpus='c'}]}",
            r"evaluation.mixture conflicts .* name the sources in one of the two ways",
        ),
        ("generator={initial='x', weight=0.0}", r"generator.weight is 0.0"),
        ("run.steps.more=1", r"'steps' is 60, not a section"),
    ],
)
def test_wrong_settings_say_where_and_how(assignment, said):
    with pytest.raises(FarspanError, match=said):
        load_recipe("tiny", assignment.splitlines())


def test_a_shell_leaves_the_home_folder_to_the_recipe(monkeypatch):
    monkeypatch.setenv("HOME", "/some/home")
    recipe = load_recipe("tiny", ["run.directory=~/runs/tiny", "data.corpus=~friend/corpus"])
    assert (recipe.run.directory, recipe.data.corpus) == ("/some/home/runs/tiny", "~friend/corpus")


def test_identity_leaves_out_what_changes_no_number():
    recipe = load_recipe("tiny")
    free = ["run.directory=x", "metrics.log_every=1", "run.micro_batch_size=4", "data.corpus=x", "checkpoint.keep=9"]
    assert load_recipe("tiny", free).identity() == recipe.identity()
    numbers = ("run.seed=1", "run.batch_size=8", "model.dropout=0.2", "optimizer.eps=1e-8", "data.target_multiple=1")
    for bound in (*numbers, "run.compile=true", "data.across_documents=false"):  # compiled layers drop other values
        assert load_recipe("tiny", [bound]).identity() != recipe.identity()


def staged(*stages, steps=60):
    return load_recipe("tiny", [f"stages=[{', '.join(stages)}]", f"run.steps={steps}"])


def test_stages_change_what_they_name_and_nothing_else():
    recipe = staged(
        "{ steps = 40, data = {source_length=1024}, attention = { pattern = 'block', size = 128 }, batch_size=8}",
        "{ steps = 15, learning_rate = 1e-3 }",
        "{ steps = 5, schedule = { warmup_steps = 2 } }",
    )
    short, long, last = recipe.curriculum
    assert (short.data.source_length, short.data.target_length) == (1024, recipe.data.target_length)
    assert (short.attention.size, long.attention) == (128, recipe.model.encoder.attention)
    assert [stage.samples(stage.first_step)[0] for stage in (short, long, last)] == [0, 0, 60]
    assert (long.learning_rate, last.learning_rate) == (1e-3, 3e-3)
    assert [(stage.schedule_start, stage.schedule_steps) for stage in (long, last)] == [(0, 60), (55, 5)]
    found = [recipe.curriculum[stage_number(recipe.curriculum, step)] for step in (0, 39, 40, 59, 60)]
    assert found == [short, short, long, last, last]


def test_budgets_of_tokens_are_numbers_of_updates():
    """PEGASUS-X, table 4: 131B input tokens are 1M updates of 256 rows of 512, or 750k and 31.25k of 4,096."""
    budget = 256 * 512 * 1_000_000
    whole = ["run.batch_size=256"]
    short = load_recipe("pegasus_x_base", [*whole, "data.source_length=512", f"run.tokens={budget}"])
    assert (short.run.steps, short.run.tokens) == (1_000_000, None)
    assert load_recipe("tiny", [f"run.tokens={4 * 4096 + 1}", "schedule.warmup_steps=0"]).run.steps == 2
    stages = f"[{{tokens={budget * 3 // 4}, data={{source_length=512}}}}, {{tokens={budget // 4}}}]"
    long = load_recipe("pegasus_x_base", [*whole, f"stages={stages}", f"run.tokens={budget}"])
    assert [stage.last_step - stage.first_step for stage in long.curriculum] == [750_000, 31_250]
    assert long.identity() == replace(long, run=replace(long.run, steps=781_250)).identity()
    with pytest.raises(FarspanError, match=f"the stages have {budget} tokens together, but run.tokens is {budget + 1}"):
        load_recipe("pegasus_x_base", [*whole, f"stages={stages}", f"run.tokens={budget + 1}"])
    with pytest.raises(FarspanError, match="run: steps and tokens are set"):
        load_recipe("tiny", ["run={directory='r', batch_size=2, steps=2, tokens=1}"])


def test_every_option_of_the_loss_is_in_the_identity():
    assert set(load_recipe("tiny").identity()["loss"]) == {field.name for field in fields(LossConfig)}
    fairseq = load_recipe("tiny", ["loss.label_smoothing=0.1", "loss.label_smoothing_form=fairseq", "loss.r3f={}"])
    assert fairseq.identity()["loss"]["label_smoothing_form"] == "fairseq"
    assert fairseq.identity()["loss"]["r3f"] is not None


def test_the_identity_of_stages_is_neither_where_their_data_lies_nor_how_they_are_passed():
    whole, stage = staged("{ steps = 60 }").identity(), "{ steps = 60, data = { corpus = '%s', source_length = 1024 } }"
    assert staged(stage % "x").identity() == staged(stage % "y").identity() != whole
    assert staged("{ steps = 60, micro_batch_size = 1 }").identity() == whole
    assert staged("{ steps = 60, batch_size = 2 }").identity() != whole


@pytest.mark.parametrize(
    ("stages", "said"),
    [
        (["{ steps = 59 }"], r"the stages have 59 steps together, but run.steps is 60"),
        (["{ steps = 0 }", "{ steps = 60 }"], r"stages: steps is 0"),
        (["{ steps = 60, learning_rate = 0.0 }"], r"stages: learning_rate is 0.0"),
        (["{ steps = 60, schedule = { warmup_steps = 61 } }"], r"stage of 60 steps; warm up for fewer"),
        (
            ["{ steps = 60, attention = { pattern = 'window', size = [64, 64, 64] } }"],
            r"stages\[0\].attention: model.encoder.attention.size has 3 sizes, but model.encoder.layers is 2",
        ),
        (
            ["{ steps = 60, data = { source_length = 8192 } }"],
            r"stages\[0\].data.source_length is 8192, but model.encoder.positions.count is 4096",
        ),
    ],
)
def test_stages_that_cannot_be_are_refused(stages, said):
    with pytest.raises(FarspanError, match=said):
        staged(*stages)


ASKING = 'data.objective={name="model_based", preset="bart_ls"}'


def test_a_trained_generator_is_part_of_the_run():
    joint = [ASKING, "generator.initial=RUN"]
    recipe = load_recipe("tiny", joint)
    assert recipe.data.objective.scorer is None
    assert recipe.identity()["generator"] == {"model": None, "weight": 1.0}
    assert load_recipe("tiny", [*joint, "generator.weight=0.5"]).identity() != recipe.identity()


def test_a_generator_serves_a_decoder_and_has_none():
    with pytest.raises(FarspanError, match="the model has none"):
        load_recipe("tiny", [ASKING, "generator.initial=RUN", "model.decoder=none"])
    model = toy_recipe("unused").model
    with pytest.raises(FarspanError, match=r"generator.model has a decoder section; it must be an encoder alone"):
        GeneratorConfig(model=model)
    with pytest.raises(FarspanError, match="set either initial"):
        GeneratorConfig(initial="run", model=replace(model, decoder=None))


def test_epochs_become_steps_when_the_data_is_known():
    """In place of the steps of the recipe below; a run of epochs is the run of its steps."""
    recipe = load_recipe("tiny", ["run.epochs=2.5", "run.batch_size=4"])
    assert (recipe.run.steps, recipe.run.epochs) == (None, 2.5)
    run = recipe.with_samples(37)
    assert run.run.steps == 24  # 92.5 samples; 4 times 23 are 92
    assert run.curriculum[-1].last_step == run.curriculum[-1].schedule_steps == 24
    assert run.identity() == load_recipe("tiny", ["run.steps=24"]).identity()
    assert run.with_samples(1000) is run
    with pytest.raises(FarspanError, match=r"schedule.warmup_steps is 10, but run.steps is 3"):
        recipe.with_samples(4)
    with pytest.raises(FarspanError, match=r"run.epochs conflicts with stages, which have steps; set run.steps to 60"):
        load_recipe("tiny", ["run.epochs=1", "stages=[{ steps = 60 }]"])


def rates(recipe):
    return [
        stage.learning_rate_at(step) for stage in recipe.curriculum for step in range(stage.first_step, stage.last_step)
    ]


def test_an_extension_has_the_learning_rate_of_a_longer_run():
    """From its beginning on; what was trained before is as it was."""
    settings = ["schedule.warmup_steps=10", "schedule.power=1", "optimizer.learning_rate=1.0"]
    base, longer, longest = (load_recipe("tiny", [*settings, f"run.steps={steps}"]) for steps in (60, 90, 100))
    twice = load_recipe("tiny", [*settings, "run.steps=60", "run.extend=[30, 10]"])
    assert rates(twice) == [*rates(base), *rates(longer)[60:], *rates(longest)[90:]]
    assert rates(twice)[59] < 0.05 < 0.3 < rates(twice)[60]
    samples = [stage.samples(step) for stage in twice.curriculum for step in (stage.first_step, stage.last_step)]
    assert [each.start for each in samples] == [0, 240, 240, 360, 360, 400]


def test_an_extension_goes_on_with_a_schedule_that_has_its_own_length():
    settings = ["schedule.steps=200", "run.steps=60"]
    long, extended = (
        load_recipe("tiny", [*settings[:1], "run.steps=90"]),
        load_recipe("tiny", [*settings, "run.extend=[30]"]),
    )
    assert rates(extended) == rates(long)
    with pytest.raises(FarspanError, match=r"run.extend: the learning rate is 0 from step 61 on, because schedule.ste"):
        load_recipe("tiny", ["schedule.steps=60", "run.extend=[30]"])


def test_an_extension_of_stages_continues_the_last_one():
    extended = load_recipe(
        "tiny",
        [
            "stages=[{ steps = 40, batch_size = 8 }, { steps = 20, schedule = { warmup_steps = 2 } }]",
            "run.extend=[20]",
            "optimizer.learning_rate=1",
        ],
    )
    _, last, more = extended.curriculum
    assert (more.batch_size, more.schedule_start, more.schedule_steps, more.first_step) == (4, 40, 40, 60)
    assert last.learning_rate_at(59) < more.learning_rate_at(60) == pytest.approx(20 / 38)


def test_a_kept_recipe_is_read_back(tmp_path):
    for name in summaries():
        recipe = load_recipe(name, ["data.corpus=corpus"])
        keep_recipe(asdict(recipe), {}, tmp_path)
        assert read_recipe(tmp_path) == recipe
    assert read_recipe(tmp_path / "elsewhere") is None
    (tmp_path / RECIPE).write_text("{")
    with pytest.raises(FarspanError, match=r"recipe.json: is damaged .*; continue the run"):
        read_recipe(tmp_path)
