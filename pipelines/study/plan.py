"""The plan of a study: the steps of every arm and seed, shared where they are equal, and checks of the comparison."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from typing import Any

from corpora.errors import FarspanError, nearest
from objectives.metrics.metrics import load_metric
from pipelines.study.steps import Step, find_command, references
from pipelines.study.study_file import Arm, StudyFile, list_arms, read_study


@dataclass(frozen=True)
class Plan:
    """All steps of a study."""

    path: str
    study: StudyFile
    arms: Sequence[Arm]
    cells: Mapping[tuple[str, int], Mapping[str, Step]]  # arm, seed -> stage -> step; only stages that metrics need

    def steps(self, only: Sequence[str] = ()) -> dict[str, Step]:
        """Return the steps by id, parents first, or those that match ``ARM/STAGE`` and their parents."""
        steps: dict[str, Step] = {}
        names = {f"{arm}/{stage}": None for (arm, _), cell in self.cells.items() for stage in cell}
        for pattern in only:
            if not any(fnmatchcase(name, pattern) for name in names):
                raise FarspanError(f"--only {pattern}: no such ARM/STAGE{nearest(pattern, names)}; see --dry-run")
        for (arm, _), cell in self.cells.items():
            for stage, step in cell.items():
                if not only or any(fnmatchcase(f"{arm}/{stage}", pattern) for pattern in only):
                    _add(step, steps)
        return dict(sorted(steps.items(), key=lambda item: item[1].level))

    def shared_by(self, step: Step) -> list[str]:
        """Names of the arms that have a step."""
        return list(dict.fromkeys(arm for (arm, _), cell in self.cells.items() if step in cell.values()))

    def measured(self, metric: str, arm: str) -> list[Step]:
        """The steps that a metric is read from, one for each seed."""
        return [self.cells[arm, seed][split_metric(metric)[0]] for seed in self.study.seed_list]


def _add(step: Step, steps: dict[str, Step]) -> None:
    for parent in step.parents.values():
        _add(parent, steps)
    steps.setdefault(step.id, step)


def split_metric(metric: str) -> tuple[str, str]:
    """Split ``STAGE.METRIC``."""
    stage, _, name = metric.partition(".")
    return stage, name


def read_plan(path: str) -> Plan:
    """Read a study file, resolve all steps and check them, without any data."""
    study = read_study(path)
    arms = list_arms(study, path)
    _check_metrics(study, path)
    needed = list(dict.fromkeys(split_metric(metric)[0] for metric in study.compare.metrics))
    cells: dict[tuple[str, int], dict[str, Step]] = {}
    known: dict[str, Step] = {}
    for arm in arms:
        for seed in study.seed_list:
            cells[arm.name, seed] = _resolve(path, study, arm, seed, needed, known)
    if unused := study.stages.keys() - {stage for cell in cells.values() for stage in cell}:
        raise FarspanError(
            f"{path}: stage {sorted(unused)[0]!r} serves no metric of [compare]; remove it, or compare it"
        )
    plan = Plan(path, study, arms, cells)
    _refuse_equal(plan)
    if "example" in study.compare.paired:
        _refuse_other_data(plan)
    return plan


def _resolve(
    path: str, study: StudyFile, arm: Arm, seed: int, needed: Sequence[str], known: dict[str, Step]
) -> dict[str, Step]:
    """Make the steps of an arm and a seed, by stage: those of stages that metrics need, and what they need.

    Steps of equal content are the same one in ``known``.
    """
    steps: dict[str, Step] = {}

    def resolve(stage: str, above: tuple[str, ...] = ()) -> Step:
        where, stages = f"{path}: [stages.{stage}]", arm.stages
        if stage in above:
            circle = " -> ".join((*above[above.index(stage) :], stage))
            raise FarspanError(f"{path}: stages refer to each other in a circle: {circle}")
        if stage in steps:
            return steps[stage]
        values = dict(stages[stage])
        command = find_command(values.pop("command", None), where)
        processes = values.pop("processes", 1)
        parents = {}
        for name in dict.fromkeys(references(values)):
            if name != "seed" and name not in stages:
                raise FarspanError(f"{where} refers to {{{name}}}, which is no stage{nearest(name, stages)}")
            if name != "seed":
                parents[name] = resolve(name, (*above, stage))
        step = Step(stage, command, values, parents, seed, processes, study.threads, where)
        step.check()
        return steps.setdefault(stage, known.setdefault(step.id, step))

    for stage in needed:
        resolve(stage)
    return steps


def _check_metrics(study: StudyFile, path: str) -> None:
    if not study.compare.metrics:
        raise FarspanError(f"{path}: compare.metrics is empty; give STAGE.METRIC, such as predictions.f1")
    if "seed" in study.stages:
        raise FarspanError(f"{path}: a stage is called 'seed', but {{seed}} is the seed; give it another name")
    for metric in study.compare.metrics:
        stage, name = split_metric(metric)
        if stage not in study.stages:
            raise FarspanError(
                f"{path}: compare.metrics has {metric!r}, but there is no stage {stage!r}"
                f"{nearest(stage, study.stages)}; give STAGE.METRIC"
            )
        command = study.stages[stage].get("command")
        if command not in ("train", "generate") or not name:
            raise FarspanError(
                f"{path}: compare.metrics has {metric!r}; give STAGE.METRIC, with a stage of `generate` and a metric "
                "of `farspan evaluate`, or a stage of `train` and a metric of its held-out data"
            )
        if command == "generate":
            load_metric(name)
        elif study.compare.by:
            raise FarspanError(
                f"{path}: compare.by is {study.compare.by!r}, but {metric!r} has no examples to divide; compare it in "
                "another file, or remove `by`"
            )


def _refuse_equal(plan: Plan) -> None:
    """Refuse arms, and seeds, that make the same."""
    seen: dict[tuple[str, ...], tuple[str, int]] = {}
    for arm in plan.arms:
        for seed in plan.study.seed_list:
            cell = plan.cells[arm.name, seed]
            made = tuple(cell[split_metric(metric)[0]].id for metric in plan.study.compare.metrics)
            other, before = seen.setdefault(made, (arm.name, seed))
            if other != arm.name:
                (first,) = (one for one in plan.arms if one.name == other)
                axes = [axis for axis, value in arm.choices.items() if value != first.choices[axis]]
                raise FarspanError(
                    f"{plan.path}: arms {other!r} and {arm.name!r} are the same; axis {axes[0]!r} changes nothing that "
                    "is compared: correct its values, or exclude one arm"
                )
            if before != seed:
                raise FarspanError(
                    f"{plan.path}: seeds {before} and {seed} of arm {arm.name!r} are the same; give a stage the seed, "
                    'such as set = {"run.seed" = "{seed}"}, or set seeds = 1'
                )


def _refuse_other_data(plan: Plan) -> None:
    """Refuse arms that are measured on different data."""
    for metric in plan.study.compare.metrics:
        first: dict[str, Any] = {}
        for arm in plan.arms:
            for number, step in enumerate(plan.measured(metric, arm.name)):
                data = _data_of(step)
                if not data:
                    raise FarspanError(
                        f"{step.where} has no held-out data for {metric}; give the recipe an [evaluation]"
                    )
                first = first or data
                if changed := [key for key in data | first if data.get(key) != first.get(key)]:
                    key = changed[0]
                    raise FarspanError(
                        f"{plan.path}: arms {plan.arms[0].name!r} and {arm.name!r} are compared by {metric} on "
                        f"different data: {key} is {first.get(key)!r} and {data.get(key)!r}"
                        + (f" (seed {plan.study.seed_list[number]})" if arm is plan.arms[0] else "")
                        + '; measure both on the same, or compare without "example" in `paired`'
                    )


def _data_of(step: Step) -> dict[str, Any]:
    """Describe the data that a step's metrics are measured on; empty if there is none."""
    if step.command.name == "generate":
        values = step.resolved
        return {key: values[key] for key in ("pairs", "documents", "split")}
    held_out = step.recipe.held_out_data
    return {} if held_out is None else asdict(held_out)
