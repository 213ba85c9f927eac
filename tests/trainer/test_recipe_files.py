"""Tests of recipe files, of single sections, and of a recipe's tasks and objectives."""

import math
from dataclasses import fields, replace
from typing import NamedTuple

import numpy as np
import pytest

from corpora.errors import FarspanError
from corpora.keyed import make_key
from objectives.api.protocol import CorpusFacts, equip, load_objective
from objectives.metrics.metrics import load_metric
from objectives.tasks.protocol import load_task
from tests.factories import OWNED, VOCAB, make_sequences
from tests.toy_tools import TOOLS
from tests.trainer.recipe_objectives import PRETRAINING, objectives_of
from trainer.generation.config import GenerationConfig
from trainer.model.loss import LossConfig, R3FConfig
from trainer.model.patterns.block import Block
from trainer.model.patterns.full import Full
from trainer.model.positions import Sinusoidal
from trainer.recipe import load_recipe
from trainer.recipe_files import list_recipes
from trainer.run_config import ValidationConfig


def test_a_file_over_another(tmp_path):
    """Tables are merged, all else replaced; another pattern or scheme begins anew; paths start at their own file."""
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner/middle.toml").write_text(
        'extends = "../lowest.toml"\n[run]\nsteps = 70\n[model.encoder.attention]\nsize = 256\n'
    )
    (tmp_path / "lowest.toml").write_text('extends = "tiny"\n[optimizer]\nbetas = [0.5, 0.6]\n')
    top = tmp_path / "top.toml"
    top.write_text(
        'extends = "inner/middle.toml"\n[model.encoder]\npooling = "none"\npositions = { scheme = "sinusoidal" }\n'
    )
    tiny, recipe = load_recipe("tiny"), load_recipe(str(top), ["run.seed=5"])
    encoder = replace(tiny.model.encoder, attention=Block(256), pooling=None, positions=Sinusoidal())
    assert recipe == replace(
        tiny,
        model=replace(tiny.model, encoder=encoder),
        optimizer=replace(tiny.optimizer, betas=(0.5, 0.6)),
        run=replace(tiny.run, steps=70, seed=5),
    )
    top.write_text('extends = "tiny"\n[model.encoder]\nattention = { pattern = "full" }\n')
    assert load_recipe(str(top)).model.encoder.attention == Full()


@pytest.mark.parametrize(
    ("a", "b", "said"),
    [
        ('extends = "b.toml"', 'extends = "a.toml"', "a.toml extends b.toml extends a.toml: recipes extend each other"),
        ('extends = "a.toml"', "", r"a.toml extends a.toml: recipes extend each other in a circle"),
        ('extends = ["tiny"]', "", r"a.toml: extends is \['tiny'\]; give one name or path"),
        ('extends = "tine"', "", r"no recipe 'tine' \(did you mean 'tiny'\?\)"),
        ('extends = "b.toml"', "[", r"b.toml: not TOML"),
        ('extends = "tiny"\n[run]\nstepz = 7', "", r"a.toml over tiny.toml: \[run\] has no key 'stepz'"),
    ],
)
def test_files_that_cannot_be_extended(tmp_path, a, b, said):
    (tmp_path / "a.toml").write_text(a)
    (tmp_path / "b.toml").write_text(b)
    with pytest.raises(FarspanError, match=said):
        load_recipe(str(tmp_path / "a.toml"))


def test_unknown_recipes_and_broken_files(tmp_path):
    with pytest.raises(FarspanError, match=r"no recipe 'bart_ls_bas' \(did you mean 'bart_ls_base'\?\)"):
        load_recipe("bart_ls_bas")
    broken, whole = tmp_path / "broken.toml", b"[run]\nsteps = 3\n"  # which is looked at before its parts
    for data, said in ((b"[run\n", ": not TOML"), (b"\xff\xfe", ": not TOML"), (whole, " lacks model, data; add what")):
        broken.write_bytes(data)
        with pytest.raises(FarspanError, match=f"broken.toml{said}"):
            load_recipe(str(broken))


@pytest.mark.parametrize(("given", "length"), [("epochs = 3", (None, 3.0)), ("steps = 3", (3, None))])
def test_a_length_in_a_file_replaces_the_length_that_it_extends(tmp_path, given, length):
    below, above = tmp_path / "below.toml", tmp_path / "above.toml"
    below.write_text('extends = "tiny"\n[run]\nepochs = 7\n[schedule]\nwarmup_steps = 0\n')
    above.write_text(f'extends = "below.toml"\n[run]\n{given}\n')
    run = load_recipe(str(above)).run
    assert (run.steps, run.epochs) == length
    assert load_recipe(str(above), ["run.steps=9"]).run.epochs is None


def test_the_search_of_a_validation_is_generation_with_its_options():
    section = ValidationConfig(metrics="f1", beams=3, max_tokens=7, limit=5, every=2)
    assert type(section.search) is GenerationConfig
    for field in fields(GenerationConfig):
        assert getattr(section.search, field.name) == getattr(section, field.name)


TUNING = [name for name in list_recipes() if load_recipe(name).data.task is not None]


class Sweep(NamedTuple):
    """A task's grid in BART-LS's sweep files and table 8, and its generation in table 9.

    Attributes:
        rates, batches, warm_ups: the grid; batches of code and paper.
        epochs, updates: limits of a run; the rate reaches zero after ``updates``.
        rows: training rows, by SCROLLS and the readmes of the data sets.
        max_tokens, min_tokens, penalty: generation with four beams.
        query: positions of a query.
    """

    rates: tuple[float, ...]
    batches: tuple[int, ...]
    warm_ups: tuple[int, ...]
    epochs: int
    updates: int
    rows: int
    max_tokens: int
    min_tokens: int
    penalty: float
    query: int | None = None


BART_LS = {
    "arxiv": Sweep((1e-4, 3e-4, 4e-4), (128,), (200,), 8, 10_000, 203_037, 300, 50, 5.0),
    "gov_report": Sweep((5e-5, 3e-4, 4e-4), (128,), (200,), 70, 15_000, 17_457, 740, 50, 4.0),
    "pubmed": Sweep((1e-4, 3e-4, 4e-4), (128, 64), (200,), 12, 10_000, 119_924, 400, 40, 4.0),
    "book_sum": Sweep((1e-4, 3e-4), (64,), (200,), 60, 10_000, 9_713, 550, 20, 4.0),
    "summ_screen": Sweep((3e-5, 5e-5), (64,), (200, 500, 1000), 130, 10_000, 3_673, 300, 50, 4.0),
    "qmsum": Sweep((5e-5, 1e-4), (32,), (100, 200), 150, 8_000, 1_257, 256, 40, 4.0, 45),
    "qasper": Sweep((3e-5, 5e-5), (16,), (200,), 120, 8_000, 2_567, 80, 0, 1.0, 32),
    "quality": Sweep((3e-5, 5e-5), (16,), (200,), 60, 8_000, 2_523, 50, 0, 3.0, 200),
    "narrative_qa": Sweep((3e-5, 5e-5), (64,), (200,), 8, 8_000, 55_003, 20, 0, 3.0, 32),
    "contract_nli": Sweep((3e-5, 5e-5), (32,), (200,), 60, 8_000, 7_191, 6, 0, 3.0, 35),
}


@pytest.mark.parametrize(("task", "sweep"), BART_LS.items(), ids=BART_LS.keys())
def test_bart_ls(task, sweep):
    recipe = load_recipe(f"bart_ls_{task}")
    optimizer, schedule, run = recipe.optimizer, recipe.schedule, recipe.run
    assert optimizer.learning_rate in sweep.rates
    assert run.batch_size in sweep.batches
    assert schedule.warmup_steps in sweep.warm_ups
    assert (schedule.steps, schedule.power, schedule.end) == (sweep.updates, 1.0, 0.0)
    assert (optimizer.name, optimizer.betas, optimizer.eps) == ("adamw", (0.9, 0.999), 1e-8)
    assert (optimizer.weight_decay, optimizer.clip_norm) == (0.01, 0.1)
    ends = sweep.epochs * sweep.rows / run.batch_size  # the limit that is reached first
    assert (run.epochs, run.steps) == ((sweep.epochs, None) if ends < sweep.updates else (None, sweep.updates))
    asks = sweep.query is not None
    assert (recipe.model.dropout, recipe.model.attention_dropout) == ((0.1, 0.1) if asks else (0.0, 0.0))
    r3f = R3FConfig(weight=0.01, eps=1e-5, per="sentence") if task in ("qmsum", "contract_nli") else None
    assert recipe.loss == LossConfig(label_smoothing=0.1, label_smoothing_form="fairseq", r3f=r3f)
    assert recipe.data.task.options.get("query_length") == sweep.query
    assert recipe.data.task.preset == ("bart_ls" if asks else "bart_ls_summary")
    search = recipe.evaluation.generation.search
    assert (search.beams, search.score, search.finish, search.no_repeat_ngram) == (4, "power", "first", 3)
    limits = sweep.max_tokens, sweep.min_tokens, sweep.penalty
    assert (search.max_tokens, search.min_tokens, search.length_penalty) == limits
    assert recipe.model.width == 1024
    assert (recipe.data.source_length, recipe.data.target_length) == (16_384, 1024)


@pytest.mark.parametrize(
    ("task", "steps", "source", "target", "beams"),
    [
        ("arxiv", 92_500, 16_384, 256, 1),
        ("big_patent", 272_500, 16_384, 256, 1),
        ("pubmed", 85_000, 8_096, 256, 1),
        ("gov_report", 40_000, 12_288, 1024, 2),
        ("summ_screen", 90_000, 16_384, 256, 1),
        ("qmsum", 7_500, 16_384, 256, 1),
        ("xsum", 97_500, 1024, 128, 4),
        ("cnn_dm", 410_000, 1024, 128, 4),
    ],
)
def test_pegasus_x(task, steps, source, target, beams):
    recipe = load_recipe(f"pegasus_x_{task}")
    rendering = load_task("text_to_text", recipe.data.task.preset, recipe.data.task.options).options
    assert (recipe.run.steps, recipe.run.batch_size) == (steps, 64)
    assert (rendering["source_length"], rendering["target_length"]) == (source, target)
    optimizer, (stage,) = recipe.optimizer, recipe.curriculum
    assert (optimizer.name, optimizer.learning_rate, optimizer.weight_decay) == ("adafactor", 8e-4, 0.0)
    for step in (0, 1, 500, 1_000, 7_000):  # pegasus/flax/optimizer.py: linear_warmup, rsqrt_normalized_decay
        rate = 8e-4 * min(1, step / 1000) * math.sqrt(1000) / math.sqrt(max(step, 1000))
        assert stage.learning_rate_at(step) == pytest.approx(rate)
    assert recipe.loss == LossConfig(label_smoothing=0.1, label_smoothing_form="fairseq")
    assert (recipe.model.dropout, recipe.model.attention_dropout) == (0.1, 0.1)
    search = recipe.evaluation.generation.search
    expected = beams, "gnmt", 0.8 if beams == 4 else 1.0, target
    assert (search.beams, search.score, search.length_penalty, search.max_tokens) == expected


@pytest.mark.parametrize(("name", "target"), [("longt5_summary", 512), ("longt5_qa", 128)])
def test_longt5(name, target):
    recipe = load_recipe(name)
    (stage,) = recipe.curriculum
    assert {stage.learning_rate_at(step) for step in (0, 10, 19_999)} == {1e-3}
    assert (recipe.optimizer.name, recipe.run.batch_size, recipe.model.dropout) == ("adafactor", 128, 0.1)
    assert (recipe.loss.label_smoothing, recipe.data.target_length) == (0.0, target)
    assert recipe.evaluation.generation.beams == 1


def test_led():
    recipe = load_recipe("led_arxiv")
    assert (recipe.optimizer.name, recipe.optimizer.learning_rate, recipe.schedule.warmup_steps) == ("adam", 3e-5, 1000)
    assert (recipe.run.epochs, recipe.run.batch_size, recipe.schedule.power) == (5, 16, 1.0)
    assert (recipe.loss.label_smoothing, recipe.model.attention_dropout) == (0.0, 0.1)
    assert recipe.checkpoint.best == "held_out_loss"


@pytest.mark.parametrize(
    ("name", "batch", "warm_up", "steps", "smoothing"),
    [
        ("primera_multi_news", 16, 1000, 50_000, 0.0),
        ("primera_multi_news_10", 10, 20, 200, 0.1),
        ("primera_multi_news_100", 10, 100, 1000, 0.1),
    ],
)
def test_primera(name, batch, warm_up, steps, smoothing):
    recipe = load_recipe(name)
    assert (recipe.run.batch_size, recipe.schedule.warmup_steps, recipe.run.steps) == (batch, warm_up, steps)
    assert (recipe.optimizer.name, recipe.optimizer.learning_rate) == ("adam", 3e-5)
    assert recipe.loss == LossConfig(label_smoothing=smoothing)
    assert recipe.data.examples == {"primera_multi_news_10": 10, "primera_multi_news_100": 100}.get(name)
    assert recipe.held_out_data.examples is None, "validation is on all of its pairs"


@pytest.mark.parametrize("name", TUNING)
def test_task_widths_generation_and_selection_go_together(name):
    recipe = load_recipe(name)
    task = load_task(recipe.data.task.name, recipe.data.task.preset, recipe.data.task.options)
    for side in ("source", "target"):
        assert 0 <= getattr(recipe.data, f"{side}_length") - task.options[f"{side}_length"] < 128
    if task.options["query"] == "every_block":
        assert task.options["block"] == recipe.model.encoder.attention.size
    takes_globals = recipe.model.encoder.attention.takes_global_positions
    assert takes_globals == (task.global_attention != "none")
    generation = recipe.evaluation.generation
    if generation:
        assert generation.max_tokens <= recipe.data.target_length
        metric = load_metric(generation.metrics)
        published = {"rouge:scrolls": "rouge/average_of_1_and_2"}.get(metric.family, metric.primary)  # (R1 + R2) / 2
        assert recipe.checkpoint.best in (published, "held_out_loss")
        assert published in metric.aggregate(metric.scores(["a b"], [["a b"]]))


def test_tuned_models_are_those_of_pretraining():
    """Else a run of pretraining could not be what fine-tuning begins with."""
    for tuned, trained in [
        ("bart_ls_qasper", "bart_ls_large"), ("pegasus_x_gov_report", "pegasus_x_base"), ("led_arxiv", "led_large"),
        ("longt5_qa", "longt5_tglobal_base"), ("primera_multi_news_10", "primera"), ("tiny_finetune", "tiny"),
        ("tiny_short", "tiny_pre_norm"),
    ]:  # fmt: skip
        one, other = load_recipe(tuned).model, load_recipe(trained).model
        assert (one.encoder, one.decoder, one.width) == (other.encoder, other.decoder, other.width)


PAIRS = [(name, *pair) for name in PRETRAINING for pair in objectives_of(name)]


def test_every_recipe_names_its_objective():
    assert {recipe for recipe, *_ in PAIRS} == set(PRETRAINING)
    assert ("bart_ls_large", "span", "bart_ls_mixed", {}) in PAIRS
    assert ("longt5_tglobal_base", "principal_sentences", "longt5_code", {}) in PAIRS
    assert ("tiny_led", "span", "t5", {"global_attention": "bos"}) in PAIRS


def distinct() -> list[tuple[str, str, str, dict[str, str]]]:
    """One recipe for each objective and lengths: a large one has those of its base."""
    found: dict[tuple, tuple] = {}
    for pair in PAIRS:
        data = load_recipe(pair[0]).data
        found.setdefault((*map(str, pair[1:]), data.source_length, data.target_length), pair)
    return list(found.values())


@pytest.mark.parametrize(("recipe", "name", "preset", "options"), distinct(), ids=str)
def test_lengths_hold_the_worst_rows(recipe, name, preset, options):
    """Full rows of one, a few and many documents."""
    data = load_recipe(recipe).data
    objective = equip(load_objective(name, preset, options), TOOLS)
    documents = 24
    tokens = data.source_length - 2 - 2 * documents
    facts = CorpusFacts(VOCAB, OWNED, data.source_length, tokens, documents, 2, 2)
    special = objective.validate(facts)
    begins = [np.linspace(0, tokens, parts, endpoint=False).astype(int).tolist() for parts in (1, 3, documents)]
    batch = make_sequences([tokens] * 3, begins)
    examples = objective.render(batch, objective.mask(batch, make_key(0, "worst")), special)
    assert examples.source_lengths.max() <= data.source_length
    assert examples.target_lengths.max(initial=0) <= data.target_length
    if load_recipe(recipe).model.decoder:
        assert examples.target_lengths.min() > data.target_length / 8  # it is not far too wide either
