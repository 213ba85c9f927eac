"""Plug-ins: names, presets and options that are resolved or refused, and packages that are broken."""

from importlib.metadata import EntryPoint
from typing import ClassVar

import pytest

from corpora.errors import FarspanError
from objectives.api import plugins
from objectives.api.plugins import Plugins
from objectives.api.protocol import load_objective
from tests.third_party import install_objectives

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
    target, said = BROKEN[name]
    install_objectives(tmp_path, "broken-objectives", {name: target})
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(
        FarspanError, match=rf"^objective {name}: entry point {target} of broken-objectives {said}"
    ) as told:
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
    entries = {
        name: EntryPoint(name, f"{__name__}:{target}", "tests.shapes")
        for name, target in (("square", "Shape"), ("other", "Other"))
    }
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
        (
            "zzzzzz",
            None,
            r"no shape or preset is called 'zzzzzz'; presets: shared, wide, small; installed",
        ),
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
