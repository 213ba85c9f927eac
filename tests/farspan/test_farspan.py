"""The public names: light to import, all there, seen by type checkers."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

import farspan

HEAVY = {"torch", "numba", "numpy", "pyarrow", "apache_beam", "transformers", "faiss", "spacy"}


def run(program: str) -> str:
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.strip()


def test_importing_and_listing_loads_nothing_heavy():
    program = f"import sys, farspan; print(len(dir(farspan)), sorted({HEAVY} & set(sys.modules)))"
    assert run(program) == f"{len(farspan.__all__)} []"


def test_a_jobs_help_loads_neither_beam_nor_torch():
    program = "import sys, farspan; farspan.corpus_random.__doc__; print({'torch', 'apache_beam'} & set(sys.modules))"
    assert run(program) == "set()"


def test_every_name_is_there():
    assert set(dir(farspan)) == set(farspan.__all__)
    for name in farspan.__all__:
        assert getattr(farspan, name).__doc__


def test_a_wrong_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match=r"^module 'farspan' has no attribute 'open_corpse'$"):
        farspan.open_corpse  # noqa: B018


@pytest.mark.parametrize("package", ["corpora", "objectives", "trainer", "pipelines"])
def test_a_script_with_the_name_of_a_package_is_named(tmp_path, package):
    """Otherwise it runs a second time, as the package, and a name inside it is said to be missing."""
    script = tmp_path / f"{package}.py"
    script.write_text("import farspan\nprint('ran')\nfarspan.Dataset, farspan.mask, farspan.load_objective\n")
    environment = {**os.environ, "PYTHONPATH": str(Path(farspan.__file__).parents[1])}
    ended = subprocess.run([sys.executable, script], capture_output=True, text=True, env=environment)
    assert ended.stdout == "ran\n"
    assert f"{script} hides farspan's package {package!r}; give that file another name" in ended.stderr


def test_names_are_exported_under_their_own_name():
    """Otherwise type checkers take an import of a stub for private."""
    stub = ast.parse(Path(farspan.__file__).with_suffix(".pyi").read_text("utf-8"))
    aliases = [alias for node in stub.body if isinstance(node, ast.ImportFrom) for alias in node.names]
    defined = {node.name for node in stub.body if isinstance(node, ast.FunctionDef)}
    exported = {alias.name for alias in aliases if alias.name == alias.asname}
    assert exported | defined | {"__version__"} == set(farspan.__all__)
    assert not exported & defined


def test_the_version_is_that_of_the_distribution():
    from corpora.storage.manifest import farspan_version

    assert farspan.__version__ == farspan_version()
