"""Kernels: compiled when there is enough to do, and cached on disk for exactly their code and constants."""

import importlib
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from corpora.compiled import Intrinsic, Kernel, compiled, note_compilation
from corpora.kernel_cache import _Files, _parts, fingerprint
from corpora.storage.gather import Gatherable, _copy, _locate, gather
from corpora.storage.ragged import Ragged


@dataclass(frozen=True)
class Lists:
    values: Ragged


@compiled(small=True)
def doubled(values):
    return 2 * values


@compiled(small=True)
def doubled_twice(values):
    return doubled(doubled(values))


@pytest.fixture
def fresh(monkeypatch) -> Any:
    """The kernels above as in a process that has just begun."""
    monkeypatch.setattr(Kernel, "plain_left", 100)
    for kernel in (doubled, doubled_twice):
        monkeypatch.setattr(kernel, "_compiled", None)
    return doubled_twice


def test_little_data_is_seen_plainly_and_much_is_compiled(fresh):
    small, large = np.arange(10), np.arange(100)
    assert np.array_equal(fresh(small), 4 * small)
    assert not fresh._compiled
    assert np.array_equal(fresh(large), 4 * large)
    assert fresh._compiled.signatures  # so numba has compiled it, and what it calls


def test_many_small_calls_are_compiled_in_the_end(fresh):
    values = np.arange(10)
    for _ in range(20):
        assert np.array_equal(fresh(values), 4 * values)
    assert fresh._compiled.signatures


@pytest.mark.parametrize("left", range(1, 60))
def test_a_plain_call_that_uses_up_the_budget_is_finished_as_plain_python(monkeypatch, left):
    """numba's own forms of reading and copying memory cannot be called from Python."""
    monkeypatch.setattr(Kernel, "plain_left", left)
    for kernel in (_locate, _copy):
        monkeypatch.setattr(kernel, "_compiled", None)
    block = Gatherable.of(Lists(Ragged.from_rows([[1, 2], [3]], np.uint16)))
    assert gather([block], np.zeros(3, np.int64), np.array([1, 0, 1])).values.values.tolist() == [3, 1, 2, 3]


def test_modules_of_kernels_and_small_calls_import_no_numba():
    code = (
        "import sys, numpy as np, corpora.storage.gather, objectives.rendering.kernels; from corpora import keyed;"
        "keyed.philox_blocks(np.uint64(1), np.uint64(2), np.uint64(1), np.empty((2, 4), np.uint64));"
        "assert not {'numba', 'corpora.kernel_cache'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


# Compiled code on disk: taken for as long as it is that of the code and constants of today, and of nothing else.
ROOT = Path(__file__).parents[2]
SHARED = """
from corpora.compiled import compiled

FACTOR = 3

@compiled
def scale(values):
    'Multiply.'
    return FACTOR * values
"""
CALLER = """
from corpora.compiled import compiled

@compiled
def scale_twice(values):
    return scale(scale(values))
"""


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Kernel]:
    """Write the files above with ``changes`` of text, and return ``scale_twice`` as a new process would load it."""
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user"))

    def load(*changes: tuple[str, str]) -> Kernel:
        members = {}
        for name, text in (("shared", SHARED), ("caller", CALLER)):
            for old, new in changes:
                text = text.replace(old, new)
            path = tmp_path / f"{name}.py"
            path.write_text(text)
            module = ModuleType(name)
            vars(module).update(members)
            exec(compile(text, path, "exec"), vars(module))
            members["scale"] = vars(module).get("scale")
        return vars(module)["scale_twice"]

    return load


def loaded(kernel: Any, dtype: type = np.int64) -> tuple[int, bool]:
    """The kernel's value for 1, and whether its code came from disk."""
    value = int(kernel.compiled()(np.ones(1, dtype))[0])
    return value, bool(kernel.compiled().stats.cache_hits)


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*.nb*"))


def test_a_constant_in_another_file_is_compiled_anew(load):
    assert loaded(load()) == (9, False)
    assert loaded(load()) == (9, True)
    assert loaded(load(("FACTOR = 3", "FACTOR = 5"))) == (25, False)
    assert loaded(load()) == (9, False)


def test_compiling_is_noted_once_and_code_from_disk_never(load, monkeypatch, capsys):
    for notes in (1, 0):  # the second time, the code is on disk
        monkeypatch.setattr(Kernel, "noted", False)
        loaded(load())
        assert capsys.readouterr().err.count("compiles loops") == notes


def test_code_and_options_in_another_file_are_compiled_anew(load):
    assert loaded(load()) == (9, False)
    assert loaded(load(("* values", "+ values"))) == (7, False)
    assert not loaded(load(("@compiled", "@compiled(error_model='numpy')")))[1]


def test_comments_docstrings_and_moved_lines_keep_compiled_code(load, tmp_path):
    assert loaded(load()) == (9, False)
    before = files(tmp_path)
    assert loaded(load(("FACTOR =", "# a comment\n\nFACTOR ="), ("\n@", "\n# another\n@"), ("Mul", "Now mul"))) == (
        9,
        True,
    )
    assert files(tmp_path) == before


def test_old_code_does_not_pile_up(load, tmp_path):
    loaded(load())
    loaded(load(), np.int32)
    count = len(files(tmp_path))
    for factor in (4, 5):
        for dtype in (np.int64, np.int32):
            assert loaded(load(("FACTOR = 3", f"\nFACTOR = {factor}")), dtype) == (factor**2, False)
    assert len(files(tmp_path)) == count


def test_a_read_only_package_is_cached_for_the_user(load, tmp_path):
    (tmp_path / "__pycache__").touch()  # no folder can be made there, not even by root
    assert loaded(load()) == (9, False)
    assert loaded(load()) == (9, True)
    assert files(tmp_path) == files(tmp_path / "user")


def test_without_any_folder_each_process_compiles(load, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(Kernel, "noted", False)
    (tmp_path / "__pycache__").touch()
    (tmp_path / "user").touch()
    assert loaded(load()) == (9, False)
    assert loaded(load()) == (9, False)
    assert capsys.readouterr().err.count("compiles loops") == 1


def test_processes_of_two_versions_never_mix_up_their_code(tmp_path):
    old, new = (
        _Files(str(tmp_path), "module.kernel-", fingerprint, note_compilation) for fingerprint in ("old", "new")
    )
    for _ in range(2):
        old.save("int64", b"old, int64")
        assert new.load("int64") is None
        new.save("int32", b"new, int32")
        new.save("int64", b"new, int64")
        assert old.load("int64") is None
        assert [new.load("int64"), new.load("int32")] == [b"new, int64", b"new, int32"]


def test_a_full_disk_costs_only_compiling_again(tmp_path):
    cache = _Files(str(tmp_path / "missing"), "module.kernel-", "a", note_compilation)
    cache.save("int64", b"code")
    assert cache.load("int64") is None


def test_code_for_a_class_that_has_moved_is_compiled_again(tmp_path, monkeypatch):
    module = ModuleType("before")
    exec("class Grams: pass", vars(module))
    monkeypatch.setitem(sys.modules, "before", module)
    cache = _Files(str(tmp_path), "module.kernel-", "a", note_compilation)
    cache.save("grams", module.Grams())
    assert isinstance(cache.load("grams"), module.Grams)
    del module.Grams
    assert cache.load("grams") is None
    monkeypatch.delitem(sys.modules, "before")
    assert cache.load("grams") is None


FUNCTION = """
import enum, numba, numpy as np
from numba.extending import intrinsic
from types import ModuleType

class Color(enum.Enum):
    RED = 1

constants = ModuleType("constants")
constants.SIZE = constants.WIDTH = 1
TABLE, SHADES = np.arange(3), {"a", "b", "c"}

@numba.njit
def called(x):
    return called(x - 1) if x > 1 else constants.WIDTH

@intrinsic
def address(typing, x):
    def generate(context, builder, signature, arguments):
        return arguments[0]
    return x(x), generate

def make(inner):
    def function(x, scale=1):
        total = sum([each + 1 for each in x])
        return total, inner, Color.RED, constants.SIZE, TABLE, SHADES, called(x), address(x), x in {"d", "e", "f"}
    return function

function = make(1)
"""


def fingerprint_of(text: str) -> str:
    module = ModuleType("example")
    exec(compile(text, "example.py", "exec"), vars(module))
    return fingerprint(vars(module)["function"], {})


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("make(1)", "make(2)"),
        ("scale=1", "scale=2"),
        ("each + 1", "each + 2"),
        ("RED = 1", "RED = 2"),
        ("constants.SIZE = constants.WIDTH = 1", "constants.SIZE, constants.WIDTH = 2, 1"),
        ("constants.SIZE = constants.WIDTH = 1", "constants.SIZE, constants.WIDTH = 1, 2"),
        ("arange(3)", "arange(1, 4)"),
        ("arange(3)", "arange(3, dtype=np.int8)"),
        ("x > 1", "x > 2"),
        ("numba.njit", "numba.njit(fastmath=True)"),
        ("arguments[0]", "arguments[-1]"),
        ('"c"', '"d"'),
        ('"f"', '"g"'),
    ],
)
def test_all_that_is_compiled_decides_the_fingerprint(old, new):
    assert old in FUNCTION
    assert fingerprint_of(FUNCTION.replace(old, new)) != fingerprint_of(FUNCTION)


def test_fingerprints_are_the_same_in_every_process():
    code = "from tests.corpora.test_compiled import FUNCTION, fingerprint_of; print(fingerprint_of(FUNCTION))"
    run = lambda seed: subprocess.run(  # noqa: E731
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": seed},
        check=True,
        capture_output=True,
    )
    assert run("1").stdout == run("2").stdout == f"{fingerprint_of(FUNCTION)}\n".encode()


def test_no_kernel_depends_on_what_differs_between_processes():
    for path in (path for room in ("corpora", "objectives") for path in sorted((ROOT / room).rglob("*.py"))):
        if "@compiled" in path.read_text("utf-8"):
            module = importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))
            for kernel in vars(module).values():
                if isinstance(kernel, Kernel) and not isinstance(kernel, Intrinsic):
                    assert " at 0x" not in "".join(_parts(vars(kernel.compiled())["py_func"], frozenset(), set()))
