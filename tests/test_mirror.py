"""The tests mirror the rooms of the source tree, not its modules.

- Tests of the folder ``corpora/linking`` lie in ``tests/corpora/linking``, or in the folder above as
  ``test_linking.py``. Which module of the folder a file of tests is about is free.
- Tests of several folders together lie in a folder ``integration`` of the package that holds them. Tests of the whole
  project lie in ``tests/`` itself.
- A folder of up to ``SHORT`` lines may be tested with what uses it.
"""

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TREES = ("corpora", "objectives", "trainer", "pipelines", "farspan", "examples", "benchmarks")
SHORT = 150  # lines


def rooms(root: Path) -> dict[Path, int]:
    """Folders of the source tree with their number of lines, without those of the folders in them."""
    lines: dict[Path, int] = {}
    for path in (path for tree in TREES for path in (root / tree).rglob("*.py")):
        room = path.parent.relative_to(root)
        lines[room] = lines.get(room, 0) + path.read_text("utf-8").count("\n")
    return lines


def rooms_with_tests(root: Path) -> set[Path]:
    """Folders that files of tests are about, relative to the root."""
    files = (path.relative_to(root / "tests") for tree in TREES for path in (root / "tests" / tree).rglob("test_*.py"))
    return {folder for path in files for folder in (path.parent, path.parent / path.stem.removeprefix("test_"))}


def untested(root: Path) -> set[str]:
    """Folders with more than ``SHORT`` lines and no tests."""
    tested = rooms_with_tests(root)
    return {room.as_posix() for room, lines in rooms(root).items() if lines > SHORT and room not in tested}


def misplaced(root: Path) -> set[str]:
    """Files of tests, relative to ``tests/``, whose folder mirrors none of the source tree."""
    files = (path.relative_to(root / "tests") for tree in TREES for path in (root / "tests" / tree).rglob("test_*.py"))
    return {
        path.as_posix() for path in files if not (root / path.parent.as_posix().removesuffix("/integration")).is_dir()
    }


def test_every_room_has_tests():
    assert untested(ROOT) == set()


def test_every_file_of_tests_has_a_room():
    assert misplaced(ROOT) == set()


@pytest.mark.parametrize(
    ("test", "wrong"),
    [
        ("b/test_ways.py", set()),
        ("b/integration/test_ways.py", set()),
        ("test_b.py", set()),
        ("c/test_read.py", {"a/c/test_read.py"}),
        ("c/integration/test_ways.py", {"a/c/integration/test_ways.py"}),
    ],
)
def test_rooms_without_tests_and_tests_without_rooms_are_found(tmp_path: Path, monkeypatch, test: str, wrong: set[str]):
    monkeypatch.setattr("tests.test_mirror.TREES", ("a",))
    for name in ("a/b/read.py", f"tests/a/{test}"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("\n" * (SHORT + 1))
    assert misplaced(tmp_path) == wrong
    tested = test in ("b/test_ways.py", "test_b.py")
    assert untested(tmp_path) == (set() if tested else {"a/b"})
