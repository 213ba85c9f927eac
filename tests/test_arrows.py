"""The arrows between the rooms: corpora <- objectives <- trainer <- pipelines, read from the source."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ROOMS = ("corpora", "objectives", "trainer", "pipelines")  # a room may import itself and those before it
BARRED = {"corpora": {"apache_beam", "torch"}, "objectives": {"apache_beam", "torch"}, "trainer": {"apache_beam"}}
OUTSIDE = {"tests", "benchmarks", "examples"}
ALLOWED = {("corpora/readers/newshead.py", "torch")}  # .pt files, inside the function that loads them


def imported(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """(line, absolute module name) of every import, wherever it stands: in functions, or by a literal name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield node.lineno, node.module or ""
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if called in ("import_module", "__import__"):
                yield node.lineno, str(node.args[0].value)


def violations(root: Path) -> list[str]:
    """``file:line imports module`` for everything that points against an arrow."""
    found = []
    for number, room in enumerate(ROOMS):
        barred = {*ROOMS[number + 1 :], *BARRED.get(room, ()), *OUTSIDE}
        for path in sorted((root / room).rglob("*.py")):
            for line, module in imported(ast.parse(path.read_text("utf-8"))):
                top, name = module.split(".")[0], path.relative_to(root).as_posix()
                if top in barred and (name, top) not in ALLOWED:
                    found.append(f"{path.relative_to(root)}:{line} imports {module}")
    return found


def test_every_import_follows_the_arrows():
    assert violations(ROOT) == []


def test_the_rooms_are_where_the_test_looks():
    """Otherwise the test above would find nothing to complain of."""
    modules = {room: list((ROOT / room).rglob("*.py")) for room in ROOMS}
    assert all(len(paths) > 1 for paths in modules.values())
    assert any(
        module.startswith("corpora.")
        for path in modules["pipelines"]
        for _, module in imported(ast.parse(path.read_text("utf-8")))
    )


@pytest.mark.parametrize(
    ("file", "text", "module"),
    [
        ("corpora/a.py", "import objectives.api.protocol", "objectives.api.protocol"),
        ("corpora/deep/a.py", "def f():\n    from trainer import loop", "trainer"),
        ("objectives/a.py", "import os, torch.nn as nn", "torch.nn"),
        ("objectives/a.py", "if TYPE_CHECKING:\n    from pipelines.engine.job import Job", "pipelines.engine.job"),
        ("corpora/a.py", "class A:\n    def f(self):\n        import apache_beam as beam", "apache_beam"),
        ("corpora/a.py", "torch = importlib.import_module('torch')", "torch"),
        ("corpora/a.py", "torch = __import__('torch')", "torch"),
        ("trainer/a.py", "from apache_beam import Create", "apache_beam"),
        ("trainer/a.py", "from tests.factories import corpus", "tests.factories"),
    ],
)
def test_a_violation_is_found(tmp_path: Path, file: str, text: str, module: str):
    (tmp_path / file).parent.mkdir(parents=True)
    (tmp_path / file).write_text(text)
    assert violations(tmp_path) == [f"{file}:{text.count(chr(10)) + 1} imports {module}"]


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("pipelines/a.py", "import corpora, objectives, trainer, torch, apache_beam"),
        ("objectives/a.py", "from corpora.storage.ragged import Ragged\nfrom objectives.api.protocol import Objective"),
        ("corpora/a.py", "from . import trainer\nimport torchless"),
    ],
)
def test_what_follows_the_arrows_is_none(tmp_path: Path, file: str, text: str):
    (tmp_path / file).parent.mkdir(parents=True)
    (tmp_path / file).write_text(text)
    assert violations(tmp_path) == []


def test_data_rooms_load_neither_beam_nor_torch():
    """Nor through what they import: a worker that only makes data does not pay for a model's libraries."""
    modules = [
        ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for room in ("corpora", "objectives")
        for path in sorted((ROOT / room).rglob("*.py"))
        if path.name != "__init__.py"
    ]
    lines = [f"import {', '.join(modules)}, sys", "print({'torch', 'apache_beam'} & set(sys.modules) or 'neither')"]
    done = subprocess.run([sys.executable, "-c", "\n".join(lines)], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout.strip() == "neither", done.stderr
