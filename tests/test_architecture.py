"""Lists and names in the documentation against the source tree: packages, readers, modules in docstrings."""

import re
from pathlib import Path

import pytest

from corpora.readers.formats import FORMATS
from corpora.readers.tasks import DATA_SETS

ROOT = Path(__file__).parents[1]
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
    files = (
        path for package in ("corpora", "objectives", "trainer", "pipelines") for path in (ROOT / package).rglob("*.py")
    )
    found = {(path.relative_to(ROOT), name) for path in files for name in named.findall(path.read_text("utf-8"))}
    assert [entry for entry in found if not is_defined(entry[1])] == []


@pytest.mark.parametrize("names", [FORMATS, DATA_SETS])
def test_every_reader_has_a_row_in_the_docs_and_a_test(names):
    pages = "".join(
        (ROOT / "docs" / page).read_text("utf-8") for page in ("corpora.md", "datasets.md", "howto/readers.md")
    )
    rows = set(re.findall(r"^\| `([\w-]+)`", pages, re.MULTILINE))
    assert set(names) - rows == set()
    tests = "".join(path.read_text("utf-8") for path in (ROOT / "tests/corpora/readers").rglob("*.py"))
    assert {name for name in names if not re.search(rf"\b{name.replace('-', '[_-]')}\b", tests)} == set()
