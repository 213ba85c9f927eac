"""The tests mirror the source tree: a module's tests have its path, and a test file names the module it is about.

- ``corpora/linking/path.py`` is tested by ``tests/corpora/linking/test_path.py``; a part of its tests may lie beside it
  in ``test_path_PART.py``.
- Tests of a whole package are named after it, inside it or beside it: ``tests/objectives/tasks/test_tasks.py``.
- Tests of several modules together lie in a folder ``integration`` of the package that holds the modules. Tests of the
  whole project lie in ``tests/`` itself.
- A module of up to ``SHORT`` lines may be tested with what uses it; so may ``kernels.py`` and ``*_kernels.py``, the
  compiled loops of the module beside them. Benchmarks and examples are run, not tested: only the modules that they
  share need tests.
"""

from collections.abc import Iterable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TREES = ("corpora", "objectives", "trainer", "pipelines", "farspan", "examples", "benchmarks")
SCRIPTS = ("examples", "benchmarks")
SHORT = 40  # lines
EXCUSED = {"__init__.py", "__main__.py"}  # re-exports and start-up
THROUGH_OTHERS = {"pipelines/engine/cooperative/stage.py"}  # by whole jobs of several processes, in test_run.py


def source_files(root: Path) -> list[Path]:
    """The modules of all trees, relative to the root."""
    files = (path for tree in TREES for path in (root / tree).rglob("*.py"))
    return sorted(path.relative_to(root) for path in files if path.name not in EXCUSED)


def needs_tests(root: Path, path: Path) -> bool:
    """True for a module of more than ``SHORT`` lines that is neither a script nor the compiled part of another."""
    text = (root / path).read_text("utf-8")
    if path.stem.endswith("kernels"):
        return False
    script = path.parts[0] in SCRIPTS and 'if __name__ == "__main__":' in text
    return len(text.splitlines()) > SHORT and not script


def untested(root: Path) -> set[str]:
    """The modules that need tests and have no file of tests."""
    needed = (path for path in source_files(root) if needs_tests(root, path))
    return {path.as_posix() for path in needed if not (root / "tests" / path.with_name(f"test_{path.name}")).exists()}


def beginnings(name: str) -> Iterable[str]:
    """``a_b_c``, ``a_b`` and ``a``: the modules that ``test_a_b_c.py`` may be about."""
    words = name.split("_")
    return ("_".join(words[:count]) for count in range(len(words), 0, -1))


def has_its_place(root: Path, path: Path) -> bool:
    """True for files named after a module or package of their folder, and for those in a folder ``integration``."""
    folder = root / path.parent
    if folder.name == "integration":
        return folder.parent.is_dir()
    names = {file.stem for file in folder.glob("*.py")} | {file.parent.name for file in folder.glob("*/__init__.py")}
    if folder.is_dir():
        names.add(folder.name)
    return not names.isdisjoint(beginnings(path.stem.removeprefix("test_")))


def misplaced(root: Path) -> set[str]:
    """Files of tests, relative to ``tests/``, that break the rule."""
    files = (path for tree in TREES for path in (root / "tests" / tree).rglob("test_*.py"))
    paths = (path.relative_to(root / "tests") for path in files)
    return {path.as_posix() for path in paths if not has_its_place(root, path)}


def test_every_longer_module_has_tests_of_its_own():
    assert untested(ROOT) == THROUGH_OTHERS


def test_every_file_of_tests_has_a_module():
    assert misplaced(ROOT) == set()


def plant(root: Path, monkeypatch: pytest.MonkeyPatch, test: str) -> None:
    """A tree ``a`` with the module ``a/b/read.py``, and one file of tests."""
    monkeypatch.setattr("tests.test_mirror.TREES", ("a",))
    for name in ("a/b/read.py", "a/b/__init__.py", f"tests/a/{test}"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()


@pytest.mark.parametrize(
    "name", ["b/test_read.py", "b/test_read_damage.py", "b/test_b_ways.py", "test_b.py", "b/integration/test_ways.py"]
)
def test_names_that_mirror(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str):
    plant(tmp_path, monkeypatch, name)
    assert misplaced(tmp_path) == set()


@pytest.mark.parametrize("name", ["test_read.py", "b/test_damage.py", "b/test_reads.py", "c/integration/test_ways.py"])
def test_names_that_do_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str):
    plant(tmp_path, monkeypatch, name)
    assert misplaced(tmp_path) == {f"a/{name}"}


def test_a_long_module_without_tests_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    plant(tmp_path, monkeypatch, "b/test_read_damage.py")
    (tmp_path / "a/b/read.py").write_text("\n" * SHORT)
    assert untested(tmp_path) == set()
    (tmp_path / "a/b/read.py").write_text("\n" * (SHORT + 1))
    assert untested(tmp_path) == {"a/b/read.py"}
