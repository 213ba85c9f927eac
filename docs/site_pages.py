"""Pages of the site that follow from the code: the command reference, the recipes, the API and the tutorial.

They are written to ``docs/generated/``, which is not committed.
"""

from __future__ import annotations

import argparse
import base64
import html
import inspect
import json
import re
from collections.abc import Iterable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

MODULES = (
    "corpora.schemas.corpus",
    "corpora.schemas.documents",
    "corpora.schemas.sequences",
    "corpora.storage.manifest",
    "corpora.storage.manifest_file",
    "objectives.api.protocol",
    "objectives.api.authoring",
    "objectives.api.masks",
    "objectives.api.examples",
    "objectives.tasks.protocol",
    "trainer.dataset",
)
"""Modules that code of users imports from, beside ``farspan`` itself."""


def write_all(docs: Path) -> None:
    """Write all generated pages below ``docs``; pages that are equal keep their time, so Sphinx skips them."""
    notebook = json.loads((docs / "tutorial.ipynb").read_text("utf-8"))
    pages = {
        **command_pages(),
        "recipe-keys.md": recipe_keys_page(),
        **api_pages(),
        "tutorial.md": notebook_page(notebook),
        **recipe_pages(docs.parent / "trainer" / "recipes"),
    }
    files = {name: text.encode() for name, text in pages.items()} | notebook_pictures(notebook)
    folder = docs / "generated"
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() or path.read_bytes() != content:
            path.write_bytes(content)
    for path in [*folder.rglob("*.md"), *folder.rglob("*.png")]:
        if path.relative_to(folder).as_posix() not in files:
            path.unlink()


def command_pages() -> dict[str, str]:
    """A page for each command, from the parsers' own help, and one that lists them: name -> text."""
    from pipelines.commands import build_parser

    intro = "The flags of each command, as `farspan COMMAND --help` prints them. In Python, each is a keyword of the "
    intro += "function with the command's name ([Python](../python.md))."
    listing, pages = ["# Commands", "", intro, "", "| command | purpose |", "|---|---|"], {}
    for name, parser in _leaves("farspan", build_parser()):
        parser.declare()
        words = name.removeprefix("farspan ")
        address = f"commands/{words.replace(' ', '-')}"
        summary = _prose(re.split(r"(?<=[.]) ", " ".join((parser.description or "").split()))[0])
        listing.append(f"| [`{words}`]({address}.md) | {summary} |")
        pages[f"{address}.md"] = "\n".join(_command_page(name, parser))
    names = sorted(name.removesuffix(".md") for name in pages)
    return {"commands.md": "\n".join([*listing, "", *_toctree(names)]), **pages}


def _command_page(name: str, parser: Any) -> Iterator[str]:
    yield from (f"# {name}", "", _prose(parser.description or ""), "")
    if parser.epilog:
        yield from ("```sh", *(line.strip() for line in parser.epilog.splitlines()[1:]), "```", "")
    for group in parser._action_groups:
        shown = [action for action in group._group_actions if _is_shown(action)]
        if shown and group.title not in ("options", "positional arguments"):
            yield from (f"## {group.title.capitalize()}", "", f"{group.description}", "")
        for action in shown:
            yield from _action(parser, action)
        yield ""


def _toctree(names: Iterable[str]) -> list[str]:
    return ["```{toctree}", ":hidden:", ":maxdepth: 1", "", *names, "```", ""]


def _leaves(name: str, parser: Any) -> Iterator[tuple[str, Any]]:
    """Each command that has no commands of its own, with its name."""
    groups = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    if not groups:
        yield name, parser
    for group in groups:
        for word, inner in group.choices.items():
            yield from _leaves(f"{name} {word}", inner)


def _is_shown(action: argparse.Action) -> bool:
    return action.help != argparse.SUPPRESS and not isinstance(action, argparse._HelpAction)


def _action(parser: argparse.ArgumentParser, action: argparse.Action) -> list[str]:
    """A flag as a definition: its spelling, then its help and default."""
    formatter = parser._get_formatter()
    spelling = formatter._format_action_invocation(action)
    needed = " (required)" if action.required and action.option_strings else ""
    told = formatter._expand_help(action) if action.help else ""
    return [f"`{spelling}`{needed}", f": {_prose(told) or 'see the examples'}", ""]


def _prose(text: str) -> str:
    """Help as Markdown: what looks like markup in it is text."""
    return re.sub(r"([<>*_\[\]|$])", lambda found: html.escape(found[1]) if found[1] in "<>" else f"\\{found[1]}", text)


def recipe_keys_page() -> str:
    """The reference of the keys of recipes, section by section, from the dataclasses and the packaged recipes."""
    from trainer.recipe_reference import recipe_keys

    lines = [
        "# Keys of recipes",
        "",
        "Every key of a recipe, as `farspan train --options KEY` prints it, with the packaged recipes that set each "
        "value in their own file. [Recipes](recipes.md) has the files, [Training](../training.md) the explanations.",
        "",
    ]
    section = ""
    for key in recipe_keys():
        if key.name.partition(".")[0] != section:
            section = key.name.partition(".")[0]
            lines += [f"## [{section.removesuffix('[]')}]", ""]
        kind = f"{key.kind} ({key.unit})" if key.unit else key.kind
        values = "; ".join(f"`{value}` in {_prose(', '.join(names))}" for value, names in key.values.items())
        default = re.sub("^default (.*)", r"default `\1`", key.default_text)
        lines += [f"`{key.name}`" + (f" ({key.of})" if key.of else ""), f": {_prose(kind)}; {default}. "]
        lines[-1] += _prose(key.meaning) + (f" Set to {values}." if values else "")
        lines.append("")
    return "\n".join(lines)


def _recipe_table() -> Iterator[str]:
    """The rows of ``farspan recipes``."""
    from trainer.recipe_reference import recipes

    yield "Parameters are counted without the rows of tokens."
    yield ""
    yield "| recipe | layers | width | parameters | source | target | length | published for |"
    yield "|---|---|---|---|---|---|---|---|"
    for row in recipes():
        length = f"{row['updates']:,} updates" if row["updates"] else f"{row['epochs']:g} epochs"
        size = f"{'+'.join(map(str, row['layers']))} | {row['width']} | {row['parameters'] / 1e6:,.0f} M"
        lengths = f"{row['source_length']:,} | {row['target_length']:,} | {length}"
        yield f"| `{row['recipe']}` | {size} | {lengths} | {row['published']} |"


def recipe_pages(folder: Path) -> dict[str, str]:
    """A page for each folder of recipes, and one that lists them: name -> text."""
    lists = ["# Recipes", "", "The packaged recipes, as `farspan recipes NAME` prints them. A recipe that begins with "]
    lists[-1] += "`extends` holds only its differences. [Keys of recipes](recipe-keys.md) explains each key."
    lists += ["", *_recipe_table(), "", "```{toctree}", ":maxdepth: 2", ""]
    pages = {}
    for system in sorted(path for path in folder.iterdir() if path.is_dir() and list(path.glob("*.toml"))):
        lines = [f"# Recipes: {system.name}", ""]
        for recipe in sorted(system.glob("*.toml")):
            lines += [f"## {recipe.stem}", "", "```toml", recipe.read_text("utf-8").rstrip(), "```", ""]
        pages[f"recipes/{system.name}.md"] = "\n".join(lines)
        lists.append(f"recipes/{system.name}")
    return {"recipes.md": "\n".join([*lists, "```", ""]), **pages}


def api_pages() -> dict[str, str]:
    """A page for each name of ``farspan`` and each module behind it, and one that lists them: name -> text."""
    import farspan

    names = [name for name in farspan.__all__ if not name.startswith("__")]
    classes = [name for name in names if isinstance(getattr(farspan, name), type)]
    parts = {
        "Functions": {name: f"autofunction:: farspan.{name}" for name in names if name not in classes},
        "Classes": {name: f"autoclass:: farspan.{name}\n   :members:\n   :no-index:" for name in classes},
        "Modules": {name: f"automodule:: {name}\n   :members:" for name in MODULES},
    }
    intro = "`import farspan` has these functions and classes. The functions that run a job have the flags of their "
    intro += "command as keywords; [Commands](commands.md) explains them. The modules have what they return and take."
    listing, pages = ["# Python API", "", intro, ""], {}
    for title, directives in parts.items():
        listing += [f"## {title}", ""]
        for name, directive in directives.items():
            subject = import_module(name) if title == "Modules" else getattr(farspan, name)
            summary = (inspect.getdoc(subject) or "").partition("\n")[0]
            listing.append(f"- [`{name}`](api/{name}.md): {_prose(summary)}")
            text = f"# {name}\n\n```{{eval-rst}}\n.. {directive}\n```\n"
            pages[f"api/{name}.md"] = text
        listing.append("")
    return {"api.md": "\n".join([*listing, *_toctree(name.removesuffix(".md") for name in pages)]), **pages}


def notebook_page(notebook: dict[str, Any]) -> str:
    """A notebook as Markdown: its code in blocks, each followed by its outputs."""
    parts = []
    for cell in notebook["cells"]:
        text = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(text)
        else:
            parts.append(f"```python\n{text}\n```")
            parts += [_output(output, _picture(cell, number)) for number, output in enumerate(cell["outputs"])]
    return "\n\n".join(parts) + "\n"


def _output(output: dict[str, Any], picture: str) -> str:
    """An output of a cell as Markdown: a picture, HTML or text."""
    data = output.get("data", {})
    if "image/png" in data:
        return f"```{{image}} {picture}\n:alt: {output['metadata']['image/png']['alt']}\n:class: output\n```"
    if "text/html" in data:
        return f'```{{raw}} html\n<div class="output">{"".join(data["text/html"])}</div>\n```'
    return f"```{{code-block}} text\n:class: output\n\n{''.join(output['text']).rstrip()}\n```"


def notebook_pictures(notebook: dict[str, Any]) -> dict[str, bytes]:
    """The pictures among a notebook's outputs: name beside its page -> PNG."""
    return {
        _picture(cell, number): base64.b64decode(output["data"]["image/png"])
        for cell in notebook["cells"]
        for number, output in enumerate(cell.get("outputs", ()))
        if "image/png" in output.get("data", {})
    }


def _picture(cell: dict[str, Any], number: int) -> str:
    """Name of the file of a picture that is output ``number`` of a cell."""
    return f"tutorial-{cell['id']}-{number}.png"
