"""The commands of the README and of all pages are ones that the parser takes; pictures and targets exist."""

import re
import shlex
from pathlib import Path

import pytest

from pipelines.commands import build_parser
from pipelines.commands.table import COMMANDS as TABLE
from trainer.recipe import load_recipe

ROOT = Path(__file__).parents[1]
BESIDE = ("docs/finetuning.md", "docs/evaluation.md", "docs/datasets.md")  # run by tests of their own
WRITTEN = [path for path in (ROOT / "docs").rglob("*.md") if not {"generated", "_build"} & set(path.parts)]
PAGES = sorted(path.relative_to(ROOT).as_posix() for path in WRITTEN)
GUIDES = [page for page in PAGES if page not in BESIDE]


def lines(page: str) -> list[str]:
    blocks = re.findall(r"```sh\n(.*?)```", (ROOT / page).read_text("utf-8"), re.DOTALL)
    return [line for block in blocks for line in block.splitlines()]


LINES = lines("README.md")
EVERY = [(page, line) for page in ("README.md", *GUIDES) for line in lines(page) if line.startswith("farspan ")]
COMMANDS = [line for page, line in EVERY if page in ("README.md", "docs/demo.md")]


def test_every_command_is_shown():
    text = "".join((ROOT / page).read_text("utf-8") for page in ("README.md", "docs/demo.md", "docs/install.md"))
    assert [command.name for command in TABLE if f"farspan {command.name}" not in text] == []
    kinds = {tuple(line.split()[1:3]) for line in COMMANDS}
    assert kinds >= {("tokenizer", "train"), *(("corpus", kind) for kind in ("random", "linked", "long", "related"))}


@pytest.mark.parametrize("command", sorted({line for _, line in EVERY}))
def test_the_parser_takes(command: str):
    parser = build_parser()
    if "--options" in command or "--version" in command:  # explains something and stops
        with pytest.raises(SystemExit, match=r"^0$"):
            parser.parse_args(shlex.split(command)[1:])
        return
    options = parser.parse_args(shlex.split(command.partition(" > ")[0], comments=True)[1:])
    if options.command == "train":
        load_recipe(options.recipe, options.set)


def test_make_knows_its_targets():
    makefile = (ROOT / "Makefile").read_text("utf-8")
    targets = [line.split()[1] for line in LINES if line.startswith("make ")]
    assert targets == ["demo", "test"]
    assert all(re.search(rf"^{target}:", makefile, re.MULTILINE) for target in targets)
    assert "make test" in (ROOT / ".ci" / "run").read_text("utf-8")


def test_pictures_are_there():
    pictures = {
        (ROOT / page).parent / picture
        for page in ("README.md", *PAGES)
        for picture in re.findall(r"!\[[^]]+\]\(([^)]+)\)", (ROOT / page).read_text("utf-8"))
    }
    assert len(pictures) > 10
    assert [picture for picture in pictures if picture.stat().st_size < 1_000] == []
