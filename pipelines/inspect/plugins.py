"""``farspan tasks`` and ``farspan check-objective``: objectives and tasks explained, and tested against the laws."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from corpora.errors import FarspanError
from corpora.printing import option_text
from corpora.reporting import result
from corpora.schemas.corpus import Corpus
from corpora.settings import format_assignment
from objectives.api.laws import LAWS, broken
from objectives.api.plugins import OWN_ERRORS, Plugins
from objectives.api.protocol import OBJECTIVES, CorpusFacts, Objective
from objectives.api.trial import Trial, digest
from objectives.tasks.protocol import TASKS
from pipelines.inspect.options import Check, Tasks
from pipelines.masks.job import equip_objective

_SHOWN = 3  # problems printed per law
_ANOTHER_PROCESS = "Masks are the same in another process, under another hash seed."


def check(options: Check) -> None:
    """Run ``farspan check-objective``."""
    if options.digest:
        print(digest(load_trial(options)))
        return
    failed = []
    for law, problems in check_laws(options):
        lines = [f"{'BROKEN' if problems else 'holds '}  {law}", *(f"        {one}" for one in problems[:_SHOWN])]
        if len(problems) > _SHOWN:
            lines.append(f"        ... and {len(problems) - _SHOWN} more")
        result("\n".join(lines), law=law, holds=not problems, problems=problems)
        failed.append(bool(problems))
    if any(failed):
        raise FarspanError(f"objective {options.objective} breaks {sum(failed)} of {len(failed)} laws")


def load_trial(check: Check) -> Trial:
    """Load the objective, and rows to test it on, spread over the corpus."""
    corpus = Corpus(check.corpus)
    if not len(corpus):
        raise FarspanError(f"{check.corpus}: holds no sequence to try an objective on; give another corpus")

    def make(options: Mapping[str, Any] | None) -> Objective:
        if options is not None:
            return equip_objective(check.corpus, check.objective, None, options, check.scorer)
        return equip_objective(check.corpus, check.objective, check.preset, check.options, check.scorer)

    rows = np.unique(np.linspace(0, len(corpus) - 1, check.rows).astype(np.int64))
    facts = CorpusFacts.of(corpus.manifest)
    try:
        make(None).validate(facts)
    except SystemExit as error:
        raise FarspanError(
            f"objective {check.objective}: validate calls sys.exit({error.code}); raise an error"
        ) from None
    parameters = inspect.signature(OBJECTIVES.factory(check.objective)).parameters.values()
    accepted = [parameter.name for parameter in parameters if parameter.kind is not parameter.VAR_KEYWORD]
    return Trial(make, corpus.take(rows), facts, check.seed, accepted)


def check_laws(check: Check) -> Iterator[tuple[str, list[str]]]:
    """Test each law; yield it as a sentence, with its violations."""
    tried = load_trial(check)
    for law in LAWS:
        yield " ".join((law.__doc__ or law.__name__).replace("``", "").split()), broken(law, tried)
    yield _ANOTHER_PROCESS, list(_elsewhere(check, tried))


def _elsewhere(check: Check, tried: Trial) -> Iterator[str]:
    """Draw the same masks in another process, and report a difference."""
    command = [sys.executable, "-P", "-m", "pipelines", "check-objective", check.objective, "--digest"]
    command += ["--corpus", check.corpus, "--seed", str(check.seed), "--rows", str(check.rows)]
    command += [part for item in check.options.items() for part in ("--set", format_assignment(*item))]
    command += ["--preset", check.preset] if check.preset else []
    command += ["--scorer", check.scorer] if check.scorer else []
    seed = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"
    other = subprocess.run(
        command, env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, text=True, check=False
    )
    if other.returncode or not other.stdout.strip():
        message = other.stderr.strip() or f"status {other.returncode}"
        yield f"the other process ended with: {message.splitlines()[-1]}"
        return
    try:
        here = digest(tried)
    except OWN_ERRORS as error:
        yield f"{type(error).__name__}: {error}"
        return
    if other.stdout.split()[-1:] != [here]:
        yield "other masks; they may depend on the order of a set, on hash() or on a global random generator"


def explain(plugins: Plugins, name: str) -> str:
    """Describe a plug-in or preset: its options with their defaults or the preset's values, and its presets."""
    owner, preset = plugins.resolve(name)
    factory = plugins.factory(owner)
    presets: Mapping[str, Mapping[str, Any]] = getattr(factory, "presets", {})
    description = inspect.cleandoc(factory.__doc__ or "").partition("\nRaises:")[0].rstrip()
    chosen = presets[preset] if preset else {}
    lines = [description.replace("``", "").replace("Attributes:", "options:"), ""]
    lines.append(f"values with preset {preset}:" if preset else "defaults:")
    for option, parameter in inspect.signature(factory).parameters.items():
        if option in chosen or parameter.default is not parameter.empty:
            lines.append(f"  {option} = {option_text(chosen.get(option, parameter.default))}")
    return "\n".join([*lines, "", "presets:", *list_presets(presets)])


def list_presets(presets: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """A line for each preset: its name and its options."""
    return [
        f"  {name}: {', '.join(f'{key}={option_text(value)}' for key, value in options.items())}"
        for name, options in presets.items()
    ]


def summary(plugins: Plugins, name: str) -> str:
    """The first sentence of a plug-in's description, after its name."""
    return inspect.cleandoc(plugins.factory(name).__doc__ or "").partition("\n")[0].partition(": ")[2]


def print_tasks(options: Tasks) -> None:
    """Run ``farspan tasks``."""
    if options.task is not None:
        print(explain(TASKS, options.task))
        return
    for name, presets in TASKS.presets().items():
        print(f"{name}: {summary(TASKS, name)}", *list_presets(presets), sep="\n")
