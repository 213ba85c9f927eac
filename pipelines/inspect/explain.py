"""Explanations of objectives and tasks: description, options with their values, and presets."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from corpora.printing import option_text
from objectives.api.plugins import Plugins
from objectives.tasks.protocol import TASKS
from pipelines.inspect.options import Tasks


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
