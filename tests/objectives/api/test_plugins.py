"""Objectives by name: plug-ins, their members and options."""

import inspect
import json
import re
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint
from typing import ClassVar

import pytest

from corpora.errors import FarspanError
from objectives.api import plugins
from objectives.api.options import (
    check_chances,
    check_choice,
    check_flag,
    check_layout,
    check_numbers,
    check_whole,
    equipped,
    normalize,
    options_of,
)
from objectives.api.plugins import Plugins
from objectives.api.protocol import CorpusFacts, EntityRecognizer, Objective, Scorer, Tools, load_objective
from objectives.sentences.entities import SpacyRecognizer
from objectives.span import Span
from tests.factories import OWNED
from tests.third_party import install_objectives
from tests.toy_tools import ToyRecognizer, ToyScorer
from trainer.scorer.scorers import MaskedLMScorer

BROKEN = {
    "no_module": ("nowhere_at_all:Thing", r"cannot be loaded: ModuleNotFoundError: No module named 'nowhere_at_all'"),
    "no_attribute": ("objectives.span:Nothing", r"cannot be loaded: AttributeError: .*'Nothing'"),
    "no_class": ("objectives.span:_BART_LS", r"is {.*; it must name a class, or a function that makes an objective"),
    "no_objective": ("builtins:dict", r"is <class 'dict'>; it must name a class, or a function"),
    "no_render": ("tests.objectives.broken:NoRender", r"makes NoRender, which lacks render; an objective has name, op"),
    "no_choose": (
        "objectives.api.authoring:SpanObjective",
        r"makes no objective of {}: TypeError: Can't instantiate abst",
    ),
    "fails": ("tests.objectives.broken:fails", r"makes no objective of {}: ZeroDivisionError: division by zero$"),
    "undecorated": (
        "tests.objectives.broken:Undecorated",
        r"has the options share, but is not a dataclass itself, .*; write @dataclass\(frozen=True\) above the class$",
    ),
    "other_name": ("tests.objectives.broken:Sound", r"makes an objective with name 'sound'; its name must be 'other_n"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_package_that_is_broken_is_one_line(tmp_path, monkeypatch, name):
    target, fault = BROKEN[name]
    install_objectives(tmp_path, "broken-objectives", {name: target})
    monkeypatch.syspath_prepend(tmp_path)
    said = rf"^objective {name}: entry point {target} of broken-objectives {fault}"
    with pytest.raises(FarspanError, match=said) as told:
        load_objective(name)
    assert "\n" not in str(told.value)


def test_a_subclass_without_options_of_its_own_needs_no_decorator(tmp_path, monkeypatch):
    install_objectives(tmp_path, "sound-objectives", {"inherits": "tests.objectives.broken:Inherits"})
    monkeypatch.syspath_prepend(tmp_path)
    assert load_objective("inherits", "few").options == {"spans": 1}


class Shape:
    """A plug-in of the kind ``shape``."""

    presets: ClassVar = {"small": {"size": 1}, "shared": {}}

    def __init__(self, size: int = 5, colour: str | None = "red") -> None:
        self.name, self.size, self.colour = "square", size, colour


class Other(Shape):
    presets: ClassVar = {"shared": {}, "wide": {"size": 9}}

    def __init__(self, **options: object) -> None:
        self.name, self.size, self.options = "other", 0, options


SHAPES = Plugins("tests.shapes", "shape", {"name": str, "size": int}, "docs/shapes.md")


@pytest.fixture
def shapes(monkeypatch):
    targets = {"square": f"{__name__}:Shape", "other": f"{__name__}:Other"}
    entries = {name: EntryPoint(name, target, "tests.shapes") for name, target in targets.items()}
    monkeypatch.setattr(plugins, "_installed", lambda group, path: entries if group == "tests.shapes" else {})
    return SHAPES


def test_a_name_is_a_plug_in_or_the_preset_of_one(shapes):
    assert shapes.resolve("square") == ("square", None)
    assert shapes.resolve("square", "shared") == ("square", "shared")
    assert shapes.resolve("small") == ("square", "small")
    assert shapes.presets() == {"other": Other.presets, "square": Shape.presets}


@pytest.mark.parametrize(
    ("name", "preset", "message"),
    [
        ("sqare", None, r"no shape is called 'sqare' \(did you mean 'square'\?\); installed: other, square"),
        ("wid", None, r"no shape or preset is called 'wid'.*wide"),
        ("zzzzzz", None, r"no shape or preset is called 'zzzzzz'; presets: shared, wide, small; installed"),
        ("shared", None, r"'shared' is a preset of other and square; give one of these and --preset shared"),
        ("small", "shared", r"'small' is itself a preset of square; leave out --preset shared"),
    ],
)
def test_other_names_are_refused_with_the_cure(shapes, name, preset, message):
    with pytest.raises(FarspanError, match=message):
        shapes.resolve(name, preset)


def test_another_package_that_is_broken_does_not_hide_what_is_wrong(shapes, monkeypatch):
    entries = {**plugins.entries("tests.shapes"), "gone": EntryPoint("gone", "no_module:Gone", "tests.shapes")}
    monkeypatch.setattr(plugins, "_installed", lambda group, path: entries)
    assert shapes.resolve("small") == ("square", "small")
    with pytest.raises(FarspanError, match=r"no shape is called 'sqare' \(did you mean 'square'\?\)"):
        shapes.resolve("sqare")
    with pytest.raises(FarspanError, match="shape gone: entry point no_module:Gone cannot be loaded"):
        shapes.resolve("zzzzzz")


def test_options_come_over_the_preset_and_null_is_none_where_it_can_be(shapes):
    made = shapes.load("square", "small", {"colour": "null"})
    assert (made.size, made.colour) == (1, None)
    assert shapes.load("square", "small", {"size": 3}).size == 3
    assert shapes.load("other", None, {"anything": "null"}).options == {"anything": "null"}


@pytest.mark.parametrize(
    ("preset", "options", "message"),
    [
        ("smal", {}, r"shape square has no preset 'smal'.*small.*; its presets: small, shared"),
        (None, {"sise": 1}, r"shape square has no option 'sise'.*size.*; its options: size, colour"),
        (None, {"size": "null"}, r"makes Shape, which lacks size; a shape has name, size \(docs/shapes\.md\)"),
    ],
)
def test_other_options_are_refused_with_the_cure(shapes, preset, options, message):
    with pytest.raises(FarspanError, match=message):
        shapes.load("square", preset, options)


def test_without_any_plug_in_the_installation_is_at_fault():
    with pytest.raises(FarspanError, match=r"no nothing is called 'x'.*none is installed: install farspan again"):
        Plugins("tests.none", "nothing", {}, "").factory("x")


def test_span_is_installed_with_its_presets():
    objective = load_objective("span", "bart_ls", {"target_length": 512})
    assert objective == Span(1 / 16, 5, "ascending", True, None, target_length=512, fit="reduce")
    assert isinstance(objective, Objective)
    assert load_objective("span") == Span()


@pytest.mark.parametrize("null", [None, "null"])
def test_a_recipe_spells_null_as_a_word(null):
    assert load_objective("span", "bart_ls", {"separator": null}).options["separator"] is None
    assert load_objective("principal_sentences", "pegasus", {"target_length": null}).options["target_length"] is None
    with pytest.raises(FarspanError, match=r"option sentinel_order is .?null.?; give descending or ascending"):
        load_objective("span", "t5", {"sentinel_order": null})


def test_a_third_partys_objective_is_found_with_options_and_checks(farspan_lead):
    objective = load_objective("lead_in", "short")
    assert isinstance(objective, Objective)
    assert objective.options == {"lead": 2, "whole_words": False}
    assert objective.validate(CorpusFacts(400, OWNED, 128, 120, 3))["<gap>"] == 400
    with pytest.raises(FarspanError, match="option lead is 0"):
        load_objective("lead_in", None, {"lead": 0})
    with pytest.raises(FarspanError, match="give at most 119"):
        load_objective("lead_in", None, {"lead": 500}).validate(CorpusFacts(400, OWNED, 128, 120, 3))


def lacks(kind: type, interface: type) -> list[str]:
    """Members of the interface that a class lacks, or whose parameters differ."""
    found = []
    for name, member in vars(interface).items():
        if name.startswith("_"):
            continue
        if isinstance(member, property):
            sound = hasattr(kind, name) or re.search(rf"self\.{name}(,| =) ", inspect.getsource(kind)) is not None
        else:
            own = getattr(kind, name, None)
            sound = callable(own) and [*inspect.signature(own).parameters] == [*inspect.signature(member).parameters]
        if not sound:
            found.append(name)
    return found


def test_an_implementation_has_every_member():
    for recognizer in (SpacyRecognizer, ToyRecognizer):
        assert lacks(recognizer, EntityRecognizer) == []
    for scorer in (MaskedLMScorer, ToyScorer):
        assert lacks(scorer, Scorer) == []
    assert lacks(ToyRecognizer, Scorer) == ["fingerprint", "tokenizer_fingerprint", "special", "losses"]


@dataclass(frozen=True)
class Toy:
    """An objective with one option of each kind."""

    value: object = None
    separator: str | None = "<doc-sep>"
    begin: bool = True
    global_attention: str = "none"
    name: str = field(default="toy", init=False)
    _tools: Tools | None = field(default=None, init=False)


CHECKS = {
    "choice": lambda toy: check_choice(toy, "value", "up", "down", None),
    "flag": lambda toy: check_flag(toy, "value"),
    "whole": lambda toy: check_whole(toy, "value", 2),
    "whole or null": lambda toy: check_whole(toy, "value", 2, null=True),
    "numbers": lambda toy: check_numbers(toy, "value", 1),
    "chances": lambda toy: check_chances(toy, "value", "mask", "keep"),
}
INFINITE, NAN = float("inf"), float("nan")


@pytest.mark.parametrize(
    ("check", "sound", "unsound", "remedy"),
    [
        ("choice", ["up", "down", None], ["Up", "", 0], "up, down or null"),
        ("flag", [True, False], [1, 0, None, "true"], "true or false"),
        ("whole", [2, 10**9], [1, 2.0, True, None, "2", NAN], "a whole number from 2 up"),
        ("whole or null", [2, None], [1, 2.0, False], "a whole number from 2 up, or null"),
        ("numbers", [1, 1.5, [1, 2.5], (3,)], [0.5, [], [1, 0], [INFINITE], NAN, True, "1", None], "a number from 1"),
        ("chances", [[0.25, 0.75], (1, 0)], [[1], [0.5, 0.6], [1.5, -0.5], [NAN, 1], 1, None], "2 numbers that add up"),
    ],
)
def test_sound_values_pass_and_others_are_refused_with_the_remedy(check, sound, unsound, remedy):
    for value in sound:
        CHECKS[check](Toy(value))
    for value in unsound:
        with pytest.raises(FarspanError, match=f"^toy: option value is .*; give {remedy}"):
            CHECKS[check](Toy(value))


def test_numbers_and_chances_become_tuples_of_floats():
    assert check_numbers(Toy(5), "value", 1) == check_numbers(Toy([5]), "value", 1) == (5.0,)
    assert check_chances(Toy([1, 0]), "value", "mask", "keep") == (1.0, 0.0)
    toy = Toy(5)
    normalize(toy, value=(5.0, (1.0, 2.0)))
    others = {"separator": "<doc-sep>", "begin": True, "global_attention": "none"}
    assert options_of(toy) == {"value": [5.0, [1.0, 2.0]], **others}
    assert json.loads(json.dumps(options_of(toy))) == options_of(toy)


@pytest.mark.parametrize(("rule", "separator", "sound"), [
    ("separators", "<doc-sep>", True), ("separators", None, False), ("bos", None, True), ("every", "<doc-sep>", False),
])  # fmt: skip
def test_global_attention_at_separators_needs_them(rule, separator, sound):
    toy = Toy(None, separator, global_attention=rule)
    if sound:
        check_layout(toy)
        return
    with pytest.raises(FarspanError, match=r"^toy: option global_attention is"):
        check_layout(toy)


def test_a_copy_holds_the_tools_and_the_original_does_not():
    toy, tools = Toy(3), Tools(tokenizer=None)
    held = equipped(toy, tools)
    assert (held._tools, toy._tools) == (tools, None)
    assert options_of(held) == options_of(toy)
