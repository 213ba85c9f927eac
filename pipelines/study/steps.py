"""A step, which is a stage with all its options resolved: its identity, its checks, and its run."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any, TextIO

from corpora.errors import FarspanError, nearest
from corpora.options import Option, options_of
from corpora.reporting import Reporting
from corpora.settings import format_assignment
from pipelines.commands.command import Command
from pipelines.commands.table import COMMANDS
from pipelines.engine.options import Engine
from pipelines.functions import list_options

_REFERENCE = re.compile(r"\{([\w.]+)\}")
_DIGITS = 10  # of a hash in the name of a folder
_DISTRIBUTED = ("train", "generate")  # commands that torchrun may start
_NO_STAGES = ("finalize", "study", "submit")  # commands with --output that make no folder of their own
_STARTED_OVER = ("convert", "tokenizer train")  # commands that do not resume


@dataclass(frozen=True)
class Step:
    """A stage with the options of an arm and a seed."""

    stage: str
    command: Command
    values: Mapping[str, Any]  # option -> value, in which `{STAGE}` and `{seed}` are still references
    parents: Mapping[str, Step]  # stage -> step of each stage that the values refer to
    seed: int
    processes: int  # of torchrun; 1 runs in this process
    threads: int
    where: str = field(compare=False)  # section of the study file, for messages

    @cached_property
    def id(self) -> str:
        """Name of the stage and hash of all that affects its result."""
        described = {"command": self.command.name, "options": self.resolved, "threads": self.threads}
        if self.processes > 1:
            described["processes"] = self.processes
        text = json.dumps(described, sort_keys=True, default=list)
        return f"{self.stage}-{hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]}"

    @cached_property
    def level(self) -> int:
        """Length of the longest chain of parents."""
        return 1 + max((parent.level for parent in self.parents.values()), default=-1)

    @cached_property
    def resolved(self) -> dict[str, Any]:
        """All options, with defaults, and parents by their ids; a recipe stands with its contents."""
        values = {name: one for name, one in self.fill("").items() if name not in _keywords(Engine)}
        options: dict[str, Any] = {}
        for one in self.command.decode(values, f"{self.where} {{}}".format):
            options |= asdict(one)
        if self.recipe is not None:
            options = {name: one for name, one in options.items() if name not in ("recipe", "assignments")}
            options |= asdict(self.recipe)
        return options

    @cached_property
    def recipe(self) -> Any:
        """The recipe of a training or a conversion, with paths by ids; None for other commands."""
        if self.command.name not in ("train", "convert") or "recipe" not in self.values:
            return None
        from objectives.api.protocol import load_objective
        from objectives.tasks.protocol import load_task
        from trainer.recipe import load_recipe

        settings = [format_assignment(key, value) for key, value in self.fill("").get("set", {}).items()]
        try:
            recipe = load_recipe(self.values["recipe"], settings)
            for source in recipe.data.sources:
                if one := source.objective:
                    load_objective(one.name, one.preset, one.options)
                if task := source.task:
                    load_task(task.name, task.preset, task.options)
            return recipe
        except FarspanError as error:
            raise FarspanError(f"{self.where} {error}") from None

    def fill(self, stages: str) -> dict[str, Any]:
        """Return the values with the folders of parents, in the folder ``stages``, and of this step.

        An empty name of ``stages`` stands for a study without a place, whose own folder is ``-``.
        """
        names: dict[str, Any] = {name: os.path.join(stages, step.id) for name, step in self.parents.items()}
        values = _substitute(dict(self.values), names | {"seed": self.seed})
        folder = os.path.join(stages, self.id) if stages else "-"
        if self.command.name == "train":
            values["set"] = {**values.get("set", {}), "run.directory": folder}
        else:
            values["output"] = folder
        return values

    def check(self) -> None:
        """Check the options without any data."""
        own = {"output", *_keywords(Reporting)}
        options = {name: one for name, one in list_options(self.command).items() if name not in own}
        for name in self.values:
            if name not in options:
                raise FarspanError(
                    f"{self.where} `{self.command.name}` has no option {name!r}{nearest(name, options)}, or the study "
                    f"sets it; options: {', '.join(options)}"
                )
        if lacking := [name for name, one in options.items() if one.required and name not in self.values]:
            raise FarspanError(f"{self.where} lacks {', '.join(lacking)}, which `{self.command.name}` needs")
        if "run.directory" in self.values.get("set", ()):
            raise FarspanError(f"{self.where} sets run.directory, which the study chooses; remove it")
        if not isinstance(self.processes, int) or self.processes < 1:
            raise FarspanError(f"{self.where} processes is {self.processes!r}; give a number from 1")
        if self.processes > 1 and self.command.name not in _DISTRIBUTED:
            raise FarspanError(f"{self.where} processes is for {' and '.join(_DISTRIBUTED)}; remove it")
        assert self.id

    def words(self, stages: str) -> list[str]:
        """Return the command line."""
        options, values = list_options(self.command), self.fill(stages)
        words = self.command.name.split()
        for name, option in sorted(options.items(), key=lambda pair: not pair[1].flag.positional):
            words += _spell(option, values[name]) if name in values else ()
        return words

    def run(self, stages: str) -> None:
        """Make or resume the artefact or run in its folder; KeyboardInterrupt if a signal stopped a training."""
        from pipelines.cli import run
        from trainer.checkpoint.run_files import SUMMARY
        from trainer.scorer.inference import pin_threads

        folder = os.path.join(stages, self.id)
        if self.command.name in _STARTED_OVER:
            shutil.rmtree(folder, ignore_errors=True)
        os.makedirs(stages, exist_ok=True)
        with open(f"{folder}.log", "a") as log:
            if self.processes > 1:
                self._run_distributed(stages, log)
            else:
                with redirect_stdout(log), redirect_stderr(log), pin_threads(self.threads):
                    run(self.command, self.fill(stages), (), f"{self.where} {{}}".format)
        if self.command.name == "train" and not os.path.exists(os.path.join(folder, SUMMARY)):
            raise KeyboardInterrupt

    def _run_distributed(self, stages: str, log: TextIO) -> None:
        """Run the command under ``torchrun``, which ends with this process."""
        arguments = ["--standalone", f"--nproc-per-node={self.processes}", "-m", "pipelines", *self.words(stages)]
        with start_child("torchrun", arguments, log, self.threads) as process:
            status = process.wait()
        if status:
            raise FarspanError(f"{self.where} torchrun ended with status {status}; {log.name} has its output")


def start_child(kind: str, arguments: list[str], output: Any, threads: int | None = None) -> subprocess.Popen[bytes]:
    """Start ``farspan`` or ``torchrun`` as a child process that ends with this one."""
    environment = {**os.environ, **({"OMP_NUM_THREADS": str(threads)} if threads else {})}
    command = [sys.executable, "-P", "-m", "pipelines.study.child", kind, *arguments]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=output, stderr=subprocess.STDOUT, env=environment)


def find_command(name: Any, where: str) -> Command:
    """Find a command that makes something in a folder."""
    makers = (
        one for one in COMMANDS if one.name == "train" or any("output" in _keywords(kind) for kind in one.kinds())
    )
    able = {one.name: one for one in makers if one.name not in _NO_STAGES}
    if name not in able:
        hint = nearest(name, able) if isinstance(name, str) else ""
        raise FarspanError(f"{where} command is {name!r}{hint}; choose one of {', '.join(able)}")
    return able[name]


def references(values: Any) -> Iterator[str]:
    """Yield the names in braces."""
    if isinstance(values, str):
        yield from _REFERENCE.findall(values)
    elif isinstance(values, Mapping | list):
        for value in values.values() if isinstance(values, Mapping) else values:
            yield from references(value)


def _substitute(values: Any, names: Mapping[str, Any]) -> Any:
    """Replace names in braces; a text that is a name alone gets the type of its value."""
    if isinstance(values, str):
        whole = _REFERENCE.fullmatch(values)
        return names[whole[1]] if whole else _REFERENCE.sub(lambda found: str(names[found[1]]), values)
    if isinstance(values, Mapping):
        return {key: _substitute(value, names) for key, value in values.items()}
    return [_substitute(value, names) for value in values] if isinstance(values, list) else values


def _spell(option: Option, value: Any) -> list[str]:
    """Return the words of an option on the command line."""
    if isinstance(value, bool):
        return [f"--{option.name}"] * value
    if isinstance(value, Mapping):
        paths = "NAME" in (option.flag.metavar or "")
        texts = [f"{key}={one}" if paths else format_assignment(key, one) for key, one in value.items()]
    else:
        texts = list(map(str, value)) if isinstance(value, list) else [str(value)]
    return texts if option.flag.positional else [word for text in texts for word in (f"--{option.name}", text)]


def _keywords(kind: type) -> list[str]:
    return [option.keyword for option in options_of(kind)]
