"""Lists and names in the documentation against the source tree: packages, shared kernels, modules in docstrings."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
KERNELS = ("corpora", "objectives", "trainer")  # packages with compiled kernels
LINE = re.compile(r"^(?P<indent> *)(?P<name>[\w.]+/?) {2,}(?P<purpose>\S.*)$", re.MULTILINE)


def listed() -> set[str]:
    """Paths of the block under *Packages*: a folder that begins a line, and what is indented below it."""
    section = (ROOT / "docs/architecture.md").read_text("utf-8").split("## Packages", 1)[1]
    paths, package = set(), ""
    for line in LINE.finditer(section.split("```")[1]):
        package = package if line["indent"] else line["name"]
        paths.add(package + line["name"] if line["indent"] else package)
    return paths


def packages() -> set[str]:
    """The packages of the distribution and the packages directly in them, each with a slash at its end."""
    found = {path.parent for pattern in ("*/__init__.py", "*/*/__init__.py") for path in ROOT.glob(pattern)}
    inside = {path.relative_to(ROOT) for path in found}
    other = {"tests", "benchmarks", "examples", "docs"}
    return {f"{path.as_posix()}/" for path in inside if path.parts[0] not in other}


def test_the_page_lists_every_package():
    assert packages() - listed() == set()


def test_what_the_page_lists_exists():
    assert [path for path in listed() if not (ROOT / path).exists()] == []


def is_compiled(node: ast.stmt) -> bool:
    """True for a function that numba compiles."""
    return isinstance(node, ast.FunctionDef) and any("compiled" in ast.unparse(one) for one in node.decorator_list)


def used_by_kernels(tree: ast.Module) -> set[str]:
    """Files of the project from which the kernels of a module use a name."""
    places = {
        alias.asname or alias.name: f"{node.module.replace('.', '/')}.py"
        for node in tree.body
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] in KERNELS
        for alias in node.names
    }
    names = {
        part.id for node in tree.body if is_compiled(node) for part in ast.walk(node) if isinstance(part, ast.Name)
    }
    return {places[name] for name in names if name in places} - {"corpora/compiled.py"}


def test_contributing_lists_the_files_whose_kernels_other_files_use():
    text = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    (sentence,) = re.findall(r"The files concerned are (.*?)\. Installed", text)
    trees = (ast.parse(path.read_text("utf-8")) for package in KERNELS for path in (ROOT / package).rglob("*.py"))
    assert set(re.findall(r"`([^`]+)`", sentence)) == set().union(*map(used_by_kernels, trees))


def is_defined(name: str) -> bool:
    """True for the dotted name of a package or module, or of something that occurs in one."""
    parts = name.split(".")
    for count in range(len(parts), 0, -1):
        place = ROOT.joinpath(*parts[:count])
        file = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
        if file.exists():
            return not parts[count:] or re.search(rf"\b{parts[count]}\b", file.read_text("utf-8")) is not None
    return False


def test_modules_that_docstrings_name_exist():
    named = re.compile(r"``((?:corpora|objectives|trainer|pipelines)(?:\.\w+)+)``")
    files = (path for package in (*KERNELS, "pipelines") for path in (ROOT / package).rglob("*.py"))
    found = {(path.relative_to(ROOT), name) for path in files for name in named.findall(path.read_text("utf-8"))}
    assert [entry for entry in found if not is_defined(entry[1])] == []
