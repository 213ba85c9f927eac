"""The environment of a command: other distributions, and Arrow without pandas."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pipelines.environment import foreign_owners


def install(folder: Path, name: str, **files: str) -> None:
    """A distribution that consists of its metadata only."""
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    for file, text in files.items():
        (info / file.replace("top_level", "top_level.txt")).write_text(text)


def test_the_tests_own_environment_is_sound():
    assert foreign_owners() == {}


@pytest.mark.parametrize(
    "files",
    [
        {"top_level": "helpers\ntrainer\n"},
        {"RECORD": "helpers/a.py,,\ntrainer/__init__.py,sha256=x,1\n"},
        {"RECORD": "trainer.py,sha256=x,1\n"},
    ],
    ids=["top level", "folder in record", "module in record"],
)
def test_an_owner_is_found_however_it_says_so(tmp_path: Path, files: dict[str, str]):
    install(tmp_path, "coach", **files)
    assert foreign_owners([str(tmp_path / "missing"), str(tmp_path)]) == {"trainer": "coach"}


@pytest.mark.parametrize(
    ("name", "files"),
    [
        ("farspan", {"top_level": "trainer\n"}),
        ("coach", {"top_level": "my_trainer\n", "RECORD": "trainer/a.py,,\n"}),
        ("coach", {"RECORD": "coach/trainer/__init__.py,,\ntrainers/__init__.py,,\ntrainer_config.py,,\n"}),
        ("coach", {}),
    ],
    ids=["farspan itself", "top level decides", "other names", "no files known"],
)
def test_others_are_no_owners(tmp_path: Path, name: str, files: dict[str, str]):
    install(tmp_path, name, **files)
    assert foreign_owners([str(tmp_path)]) == {}


def test_start_up_says_which_and_imports_nothing_of_it(tmp_path: Path):
    install(tmp_path, "coach", top_level="corpora\n")
    (tmp_path / "corpora").mkdir()
    (tmp_path / "corpora" / "__init__.py").write_text("raise RuntimeError('imported')")
    root = Path(__file__).parents[2]
    # theirs comes first on the path, as it may in a shared environment
    search = os.pathsep.join([str(tmp_path), str(root)])
    done = subprocess.run(
        [sys.executable, "-m", "pipelines", "--help"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": search},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert done.stderr == (
        "farspan: 'corpora' is also a package of coach; install farspan into a separate environment, "
        "or uninstall the other\n"
    )


PROGRAM = """
import sys
from pipelines.arrow_alone import leave_pandas_out
leave_pandas_out()
import pyarrow as pa, numpy as np
assert pa.array(np.arange(3)).to_pylist() == [0, 1, 2]
assert pa.array([None, "a"], pa.string()).to_pylist() == [None, "a"]
assert "pandas" not in sys.modules
assert pa.table({"a": [1]}).to_pandas()["a"].tolist() == [1]
assert pa.array(sys.modules["pandas"].Series([1.0, float("nan")])).to_pylist() == [1.0, None]
"""


def test_arrow_looks_for_pandas_when_it_is_asked_for_it():
    pytest.importorskip("pandas")
    subprocess.run([sys.executable, "-c", PROGRAM], check=True)
