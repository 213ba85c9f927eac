"""The arrows between the packages: corpora <- objectives <- trainer <- pipelines <- farspan, read from the source."""

import ast
import subprocess
import sys
from collections.abc import Container, Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("corpora", "objectives", "trainer", "pipelines", "farspan")  # each may import itself and those before it
BARRED = {"corpora": {"apache_beam", "torch"}, "objectives": {"apache_beam", "torch"}, "trainer": {"apache_beam"}}
OUTSIDE = {"tests", "benchmarks", "examples"}
ALLOWED = {("corpora/readers/formats/newshead.py", "torch")}  # .pt files, inside the function that loads them


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
    for number, package in enumerate(PACKAGES):
        barred = {*PACKAGES[number + 1 :], *BARRED.get(package, ()), *OUTSIDE}
        for path in sorted([*(root / package).rglob("*.py"), *(root / package).rglob("*.pyi")]):
            for line, module in imported(ast.parse(path.read_text("utf-8"))):
                top, name = module.split(".")[0], path.relative_to(root).as_posix()
                if top in barred and (name, top) not in ALLOWED:
                    found.append(f"{path.relative_to(root)}:{line} imports {module}")
    return found


def test_every_import_follows_the_arrows():
    assert all(len([*(ROOT / package).rglob("*.py*")]) > 1 for package in PACKAGES)  # the test looks where they are
    assert violations(ROOT) == []


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
        ("pipelines/a.py", "import farspan", "farspan"),
        ("pipelines/a.py", "import corpora, objectives, trainer, torch, apache_beam", None),
        ("farspan/__init__.pyi", "from pipelines.functions import mask as mask", None),
        ("objectives/a.py", "from corpora.storage.ragged import Ragged\nfrom objectives.api import protocol", None),
        ("corpora/a.py", "from . import trainer\nimport torchless", None),
    ],
)
def test_violations_are_found_and_nothing_else(tmp_path: Path, file: str, text: str, module: str | None):
    (tmp_path / file).parent.mkdir(parents=True)
    (tmp_path / file).write_text(text)
    assert violations(tmp_path) == ([f"{file}:{text.count(chr(10)) + 1} imports {module}"] if module else [])


def modules_of(root: Path) -> dict[str, Path]:
    """Module name -> file, of all packages."""
    files = (path for package in PACKAGES for path in sorted((root / package).rglob("*.py")))
    return {".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__"): path for path in files}


def imported_modules(tree: ast.AST, modules: Container[str]) -> Iterator[str]:
    """Those of ``modules`` that a module imports: when it is loaded, in a function, or for its types."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in modules)
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module in modules:
            names = (f"{node.module}.{alias.name}" for alias in node.names)
            yield from (name if name in modules else node.module for name in names)


def import_cycle(root: Path, rooms: str = "") -> list[str]:
    """Modules of the packages that import each other in a circle, the first one repeated at the end; none if empty.

    Args:
        rooms: a package whose folders count as one module each.
    """
    modules, graph = modules_of(root), {}

    def place(name: str) -> str:
        package, *parts = name.split(".")
        return f"{package}.{parts[0]}" if package == rooms and parts else name

    for name, path in modules.items():
        imports = {place(each) for each in imported_modules(ast.parse(path.read_text("utf-8")), modules)}
        graph.setdefault(place(name), set()).update(imports - {place(name)})
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return error.args[1]
    return []


def test_no_modules_import_each_other_in_a_circle():
    assert import_cycle(ROOT) == []


@pytest.mark.parametrize("package", ["trainer"])
def test_no_folders_of_a_package_import_each_other_in_a_circle(package: str):
    assert import_cycle(ROOT, package) == []


def write_modules(root: Path, modules: dict[str, str]) -> None:
    """Write modules of ``trainer`` with these texts."""
    for name, text in modules.items():
        path = root / "trainer" / f"{name.replace('.', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def test_a_circle_of_folders_is_found(tmp_path: Path):
    write_modules(
        tmp_path, {"a.one": "import trainer.b.one", "a.two": "", "b.one": "", "b.two": "import trainer.a.two"}
    )
    assert import_cycle(tmp_path) == []
    assert {*import_cycle(tmp_path, "trainer")} == {"trainer.a", "trainer.b"}


@pytest.mark.parametrize("last", ["import trainer.a", "def f():\n    import trainer.a"])
def test_a_circle_is_found(tmp_path: Path, last: str):
    typed = "if TYPE_CHECKING:\n    from trainer.c import C"
    modules = {"__init__": "", "a": "from trainer import b", "b": typed, "c": last, "d": "import trainer.a"}
    write_modules(tmp_path, modules)
    assert {*import_cycle(tmp_path)} == {"trainer.a", "trainer.b", "trainer.c"}
    write_modules(tmp_path, {"c": ""})
    assert import_cycle(tmp_path) == []


def test_data_packages_load_neither_beam_nor_torch():
    """Nor through what they import: a worker that only makes data does not pay for a model's libraries."""
    modules = [
        ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for package in ("corpora", "objectives")
        for path in sorted((ROOT / package).rglob("*.py"))
        if path.name != "__init__.py"
    ]
    lines = [f"import {', '.join(modules)}, sys", "print({'torch', 'apache_beam'} & set(sys.modules) or 'neither')"]
    done = subprocess.run([sys.executable, "-c", "\n".join(lines)], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout.strip() == "neither", done.stderr
