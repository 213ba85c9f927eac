"""The study file: stages, axes, arms, seeds and the comparison."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import Any, Literal

from corpora.errors import FarspanError, nearest
from corpora.settings import parse
from corpora.storage.files import read_user_toml

_NAME = re.compile(r"[A-Za-z0-9][\w.]*")  # without dashes, which join the values of an arm
Tables = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True, kw_only=True)
class Compare:
    """The section ``[compare]``.

    Attributes:
        baseline: arm that the others are compared with.
        metrics: ``STAGE.METRIC`` each.
        by: attribute of the pairs, for a table of the predictions with each value of it; empty for none.
        paired: what the arms have in common: seeds, examples or both.
    """

    baseline: str
    metrics: tuple[str, ...]
    by: str = ""
    paired: tuple[Literal["seed", "example"], ...] = ("seed", "example")


@dataclass(frozen=True, kw_only=True)
class StudyFile:
    """The contents of a study file.

    Attributes:
        stages: name -> ``command`` and its options.
        matrix: axis -> value -> stage -> options that replace those of the stage.
        compare: arms and metrics to compare.
        exclude: axis -> value each; arms with all of them are left out.
        seeds: their number, or a list.
        threads: processor threads of each stage, which change floating-point rounding.
    """

    stages: Mapping[str, Any]
    matrix: Mapping[str, Any]
    compare: Compare
    exclude: tuple[Mapping[str, Any], ...] = ()
    seeds: tuple[int, ...] | int = 5
    threads: int = 1

    @property
    def seed_list(self) -> tuple[int, ...]:
        return tuple(range(self.seeds)) if isinstance(self.seeds, int) else self.seeds


@dataclass(frozen=True)
class Arm:
    """A combination of values of all axes."""

    choices: Mapping[str, str]  # axis -> value
    stages: Tables = field(repr=False)  # name -> `command` and its options, with the values' options in place

    @property
    def name(self) -> str:
        return "-".join(self.choices.values())


def read_study(path: str) -> StudyFile:
    """Read a study file and check its structure."""
    study = parse(StudyFile, read_user_toml(path), path)
    seeds = study.seed_list
    if not seeds or len(set(seeds)) < len(seeds) or min(seeds) < 0:
        raise FarspanError(f"{path}: seeds is {study.seeds!r}; give a number from 1, or a list of different seeds")
    if study.threads < 1:
        raise FarspanError(f"{path}: threads is {study.threads}; give a number from 1")
    for section, tables in (("stages", study.stages), ("matrix", study.matrix)):
        _require_tables(path, section, tables)
    for axis, values in study.matrix.items():
        _require_tables(path, f"matrix.{axis}", values)
        for value, changes in values.items():
            _require_tables(path, f"matrix.{axis}.{value}", changes, study.stages)
    for number, excluded in enumerate(study.exclude):
        for axis, value in excluded.items():
            if value not in study.matrix.get(axis, {}):
                raise FarspanError(
                    f"{path}: exclude[{number}] has {axis} = {value!r}, which [matrix] lacks; correct or remove it"
                )
    return study


def _require_tables(path: str, section: str, tables: Any, known: Any = None) -> None:
    """Check that a section has only tables, with good names, which are among the ``known`` ones if given."""
    if not isinstance(tables, Mapping):
        raise FarspanError(f"{path}: [{section}] is {tables!r}; a table is needed")
    for name, table in tables.items():
        if not _NAME.fullmatch(name):
            raise FarspanError(f"{path}: [{section}] has the name {name!r}; use letters, digits, `_` and `.`")
        if known is not None and name not in known:
            raise FarspanError(f"{path}: [{section}] changes {name!r}, which is no stage{nearest(name, known)}")
        if not isinstance(table, Mapping):
            raise FarspanError(f"{path}: {section}.{name} is {table!r}; a table is needed")


def list_arms(study: StudyFile, path: str) -> list[Arm]:
    """List the arms in the order of the file, without the excluded ones."""
    _refuse_conflicts(study, path)
    arms, left_out = [], set()
    for values in product(*study.matrix.values()):
        choices = dict(zip(study.matrix, values, strict=True))
        stages = {name: dict(table) for name, table in study.stages.items()}
        for axis, value in choices.items():
            for stage, changes in study.matrix[axis][value].items():
                stages[stage] = _merge(stages[stage], changes)
        arm = Arm(choices, stages)
        if any(one.items() <= choices.items() for one in study.exclude):
            left_out.add(arm.name)
        else:
            arms.append(arm)
    baseline, names = study.compare.baseline, [arm.name for arm in arms]
    if baseline in left_out:
        raise FarspanError(f"{path}: compare.baseline {baseline!r} is excluded; choose another arm, or include it")
    if baseline not in names:
        raise FarspanError(
            f"{path}: compare.baseline {baseline!r} is no arm{nearest(baseline, names)}; arms: {', '.join(names)}"
        )
    if len(arms) < 2:
        raise FarspanError(f"{path}: the study has one arm, {names[0]}; give [matrix] an axis with two values")
    return arms


def _refuse_conflicts(study: StudyFile, path: str) -> None:
    """Refuse two axes that set the same option, of which one would have no effect."""
    owners: dict[tuple[str, ...], str] = {}
    for axis, values in study.matrix.items():
        for changes in values.values():
            for stage, table in changes.items():
                for option in _flatten(table):
                    if owners.setdefault((stage, *option), axis) != axis:
                        raise FarspanError(
                            f"{path}: axes {owners[stage, *option]!r} and {axis!r} both set {'.'.join(option)} of "
                            f"stage {stage!r}; an option can vary along one axis"
                        )


def _flatten(table: Mapping[str, Any]) -> list[tuple[str, ...]]:
    return [
        (key, inner) if isinstance(value, Mapping) else (key,)
        for key, value in table.items()
        for inner in (value if isinstance(value, Mapping) else ("",))
    ]


def _merge(table: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``table`` with ``changes``; options that are tables, such as ``set``, are merged key by key."""
    merged = dict(table)
    for key, value in changes.items():
        old = merged.get(key)
        merged[key] = {**old, **value} if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return merged
