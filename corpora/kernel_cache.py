"""Compiled kernels on disk, valid for exactly the code and constants that were compiled; importing it imports numba.

numba's own cache takes compiled code for current as long as the file of the function stays the same, although constants
and functions of other files are compiled in. It also keeps an index of each function, whose entries two processes can
mix up.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Set
from contextlib import suppress
from types import CodeType, FunctionType, ModuleType
from typing import Any

import numba
import numpy as np
from numba.core.caching import FunctionCache, IndexDataCacheFile

_LIBRARIES = sys.stdlib_module_names | {"llvmlite", "numba", "numpy"}
"""Packages that are described by names alone; the versions of numba and numpy belong to each fingerprint."""


class KernelCache(FunctionCache):
    """The cache of one function: beside its source, or in the user's cache where that folder is read-only.

    ``missed`` is called when the cache has no code for the arguments of a call, before numba compiles.
    """

    def __init__(self, function: FunctionType, options: Mapping[str, Any], missed: Callable[[], None]) -> None:
        super().__init__(function)
        module = os.path.splitext(os.path.basename(function.__code__.co_filename))[0]
        name = f"{module}.{function.__qualname__}.{sys.implementation.cache_tag}-"
        self._cache_file = _Files(self.cache_path, name, fingerprint(function, options), missed)


class _Files(IndexDataCacheFile):
    """One file for each signature and processor; saving deletes the files of other fingerprints."""

    def __init__(self, folder: str, function: str, fingerprint: str, missed: Callable[[], None]) -> None:
        super().__init__(folder, function, fingerprint)
        self._function, self._prefix, self._missed = function, f"{function}{fingerprint}-", missed

    def load(self, key: Any) -> Any:
        with suppress(OSError, ImportError, AttributeError):  # the class of an argument may have moved
            return self._load_data(self._name(key))
        self._missed()
        return None

    def save(self, key: Any, data: Any) -> None:
        with suppress(OSError):  # a full disk costs compiling again
            self._save_data(self._name(key), data)
            for name in os.listdir(self._cache_path):
                if name.startswith(self._function) and not name.startswith(self._prefix):
                    os.unlink(os.path.join(self._cache_path, name))

    def _name(self, key: Any) -> str:
        return f"{self._prefix}{hashlib.sha256(repr(key).encode()).hexdigest()[:16]}.nbc"


def fingerprint(function: FunctionType, options: Mapping[str, Any]) -> str:
    """Return a hash of what numba compiles: code, constants and options of a function and of those that it calls."""
    digest = hashlib.sha256(f"{numba.__version__} {np.__version__}".encode())
    for part in _parts((function, options), frozenset(), set()):
        digest.update(part.encode() + b"\0")
    return digest.hexdigest()[:16]


def _parts(value: Any, names: frozenset[str], visited: set[tuple[int, frozenset[str]]]) -> Iterator[str]:
    """Describe a value by texts that are the same in every process.

    ``names``: those in the code that uses the value; attributes of modules and classes with other names are left out.
    ``visited``: functions that are described already, and modules and classes with the names they were described for.
    """
    function = value if isinstance(value, FunctionType) else getattr(value, "__wrapped__", value)  # what numba wraps
    if isinstance(function, FunctionType | ModuleType | type):
        package = function.__name__ if isinstance(function, ModuleType) else function.__module__
        yield f"{type(value).__name__} {package} {getattr(function, '__qualname__', '')}"
        visit = id(function), frozenset() if isinstance(function, FunctionType) else names
        if visit in visited or package.partition(".")[0] in _LIBRARIES:
            return
        visited.add(visit)
        if isinstance(function, FunctionType):
            names, members = _names(function.__code__), function.__globals__
            cells = [cell.cell_contents for cell in function.__closure__ or ()]
            options = getattr(value, "targetoptions", {})
            code = function.__code__
            if function.__doc__ is not None:  # the first constant
                code = code.replace(co_consts=(None, *code.co_consts[1:]))
            yield from _parts((code, function.__defaults__, cells, options), names, visited)
        else:
            members = vars(function)
        for name in sorted(names & members.keys()):
            yield name
            yield from _parts(members[name], names, visited)
    elif isinstance(value, CodeType):
        yield value.co_code.hex() + value.co_exceptiontable.hex()
        signature = value.co_argcount, value.co_posonlyargcount, value.co_kwonlyargcount, value.co_flags
        yield repr((signature, value.co_names, value.co_varnames, value.co_freevars, value.co_cellvars))
        yield from _parts(value.co_consts, names, visited)
    elif isinstance(value, Mapping | Set):
        yield from _parts(sorted(value.items() if isinstance(value, Mapping) else value, key=repr), names, visited)
    elif isinstance(value, tuple | list):
        yield f"{type(value).__name__} {len(value)}"
        for each in value:
            yield from _parts(each, names, visited)
    elif isinstance(value, np.ndarray):
        yield f"{value.dtype} {value.shape} {value.tobytes().hex()}"
    else:
        yield f"{type(value).__name__} {getattr(value, '__qualname__', repr(value))}"


def _names(code: CodeType) -> frozenset[str]:
    """Return the names of globals and attributes in code, and in the functions inside it."""
    return frozenset(code.co_names).union(*(_names(each) for each in code.co_consts if isinstance(each, CodeType)))
