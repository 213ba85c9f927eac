"""``farspan study``: processes that share the steps of a study, and the table that the last of them writes."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from typing import Any

from corpora.errors import FarspanError
from corpora.printing import format_count
from corpora.reporting import current, note, result
from corpora.storage import files
from corpora.storage.manifest import Receipt
from pipelines.engine.claims import create_folder
from pipelines.engine.folder import FolderGone, check_output, describe_changes
from pipelines.engine.job import WORK, Stage, Task, claims_folder
from pipelines.engine.members import LAUNCHER, Identity, Member
from pipelines.engine.options import Engine
from pipelines.engine.participant import SharedStage, stop_others
from pipelines.engine.progress import ProgressBars
from pipelines.figures import check_figure
from pipelines.interrupts import Interrupts
from pipelines.options import Study
from pipelines.study.plan import Plan, read_plan
from pipelines.study.report import FILES, STAGES, draw, format_text, write_tables
from pipelines.study.steps import Step, start_child
from pipelines.study.table import make_tables

_ENGINE = Engine(engine="cooperative")


def command(options: Study) -> None:
    """Run ``farspan study``."""
    if options.figure:
        check_figure(options.figure)
    if not files.is_local(options.output):
        raise FarspanError(f"--output {options.output}: give a folder on a local or shared file system, not in a store")
    plan = read_plan(options.file)
    output = os.path.abspath(options.output)
    steps = plan.steps(options.only)
    if options.dry_run:
        print(describe(plan, steps, output, options.jobs))
        return
    with Interrupts(_ENGINE.grace) as interrupts, create_folder(output):
        begin(plan, output, options.update)
        with start_others(options):
            take_part(steps, output, interrupts)
            report_warnings(steps, output)
            if options.only:
                return
    tables = make_tables(plan, os.path.join(output, STAGES))
    write_tables(tables, output)
    if current().log_format == "json":
        result(f"{output}: {format_count(len(tables), 'table')}", output=output, tables=tables)
    else:
        print(format_text(tables), end="")
    if options.figure:
        draw(tables, options.figure)
        result(f"figure: {options.figure}", figure=options.figure)


def begin(plan: Plan, output: str, update: bool) -> None:
    """Write the study into its folder, or compare it with the one there."""
    place = os.path.join(output, WORK, "job.json")
    now: dict[str, Any] = {"format": "farspan.study", "study": json.loads(json.dumps(asdict(plan.study)))}
    if files.exists(place):
        before = json.loads(files.read_bytes(place))
        if before.get("format") != now["format"]:
            raise FarspanError(f"{output}: holds another job; give --output another folder")
        changes = describe_changes(before["study"], now["study"])
        if changes and not update:
            raise FarspanError(
                f"{plan.path}: is not the study that was begun in {output}: {changes}; give --output another folder, "
                "or --update to go on with the changed file and keep the stages that are the same"
            )
        files.delete([os.path.join(claims_folder(output), "job.failed")])
        if not changes:
            return
    else:
        check_output(output)
    files.delete([os.path.join(output, name) for name in FILES if files.exists(os.path.join(output, name))])
    files.write_bytes(place, (json.dumps(now, indent=1) + "\n").encode())


@contextmanager
def start_others(options: Study) -> Iterator[None]:
    """Run ``jobs - 1`` further processes of the study beside this one, and end them with it."""
    arguments = ["study", os.path.abspath(options.file), "--output", options.output, "--quiet"]
    arguments += [word for pattern in options.only for word in ("--only", pattern)]
    with ExitStack() as stack:
        for _ in range(options.jobs - 1):
            process = stack.enter_context(start_child("farspan", arguments, subprocess.DEVNULL))
            stack.callback(process.stdin.close)  # type: ignore[union-attr]  # before the wait for its end
        yield


def take_part(steps: Mapping[str, Step], output: str, interrupts: Interrupts) -> None:
    """Do steps until all are done, by this process or others; each begins once its parents are done."""
    stages = os.path.join(output, STAGES)
    tasks: dict[str, list[Task]] = {}
    for step in steps.values():
        tasks.setdefault(step.stage, []).append(Task(step.id, {}, 1))
    rows = [Stage(name, of_stage, lambda task, _: Receipt(task.name), "stages") for name, of_stage in tasks.items()]

    def is_ready(task: Task) -> bool:
        parents = {parent.id for parent in steps[task.name].parents.values()}
        return find_done(parents, output) == parents

    def work(task: Task) -> None:
        step, start = steps[task.name], time.monotonic()
        step.run(stages)
        receipt = {"command": step.words(stages), "seconds": round(time.monotonic() - start, 1)}
        files.write_bytes(receipt_path(output, step.id), (json.dumps(receipt) + "\n").encode())
        for name in find_done(steps, output):  # by others, too, who have been at work all the while
            bars.report(steps[name].stage, name, 1)

    try:
        identity = Identity.own(LAUNCHER, _ENGINE.lease)
        with Member(output, identity) as member, stop_others(member), ProgressBars(rows) as bars:
            done = find_done(steps, output)
            for row in rows:
                bars.restore(row, done)
            SharedStage(
                output,
                os.path.join(claims_folder(output), STAGES),
                [task for row in rows for task in row.tasks if task.name not in done],
                member,
                interrupts,
                work,
                lambda task: bars.report(steps[task.name].stage, task.name, 1),
                ready=is_ready,
            ).finish()
    except FolderGone:
        raise FarspanError(f"{output}: was deleted while the study ran; run the same command again") from None


def report_warnings(steps: Mapping[str, Step], output: str) -> None:
    """Print the first warning in the logs of each stage, which nobody reads while all goes well."""
    warnings: dict[str, str] = {}
    for name, step in steps.items():
        path = os.path.join(output, STAGES, f"{name}.log")
        lines = files.read_bytes(path).decode(errors="replace").splitlines() if files.exists(path) else []
        if step.stage not in warnings and (line := next((line for line in lines if line.startswith("warning:")), "")):
            warnings[step.stage] = f"{path}: {line}"
    for warning in warnings.values():
        note(warning)


def receipt_path(output: str, step: str) -> str:
    """Path of the file that says that a step, given by its id, is done."""
    return os.path.join(output, WORK, f"{step}.json")


def find_done(steps: Iterable[str], output: str) -> set[str]:
    """Return the ids of the steps that are done."""
    return {step for step in steps if files.exists(receipt_path(output, step))}


def describe(plan: Plan, steps: Mapping[str, Step], output: str, jobs: int) -> str:
    """Describe the arms, each step with its state, and the time that is left as far as steps of the stage took some."""
    done = find_done(steps, output)
    seconds: dict[str, list[float]] = {}
    for name in done:
        receipt = json.loads(files.read_bytes(receipt_path(output, name)))
        seconds.setdefault(steps[name].stage, []).append(receipt["seconds"])
    arms = [arm.name for arm in plan.arms]
    lines = [
        f"{format_count(len(arms), 'arm')}: {', '.join(arms)}",
        f"seeds: {', '.join(map(str, plan.study.seed_list))}",
    ]
    left, unknown = 0.0, Counter[str]()
    for name, step in steps.items():
        state = "done" if name in done else "begun" if os.path.exists(os.path.join(output, STAGES, name)) else "to do"
        if name not in done and step.stage in seconds:
            left += sum(seconds[step.stage]) / len(seconds[step.stage])
        elif name not in done:
            unknown[step.stage] += 1
        shared = plan.shared_by(step)
        lines.append(f"{state:<6} {name:<40} {'all arms' if len(shared) == len(arms) else ', '.join(shared)}")
    lines.append(f"{len(done)} of {format_count(len(steps), 'stage')} done")
    if left:
        more = f", and {', '.join(f'{count} {name}' for name, count in unknown.items())}" if unknown else ""
        lines.append(f"left, by the stages that are done: {left / jobs / 60:.1f} min with {jobs} jobs{more}")
    return "\n".join(lines)
