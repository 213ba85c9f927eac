"""Kernels: loops over arrays, compiled by numba once there is enough to do.

Importing numba and loading one compiled kernel takes more than a second. So the first call that needs numba imports it,
and kernels declared ``small`` run as plain Python, with equal results, until the arrays passed to them add up to a
limit.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import update_wrapper
from importlib import import_module
from types import FunctionType
from typing import Any, TypeVar, cast, overload

import numpy as np

from corpora.reporting import note

Function = TypeVar("Function", bound=Callable[..., Any])

_PLAIN = 1 << 15
"""Array elements that plain calls of a process may receive, at up to 10 us each, before all kernels are compiled."""


class Kernel:
    """A function, in the subset of Python that numba compiles, that it compiles at its first call, or later.

    A kernel may call other kernels, of any module. Compiled code is cached on disk, until it or a constant in
    it changes (``KernelCache``). Calls of ``small`` kernels on little data may run as plain Python. The function must
    then return the same bits either way, which ``tests/test_small_kernels.py`` checks: array elements keep their dtype
    in Python, while numba widens small integers to 64 bits.
    """

    plain_left = _PLAIN
    """Array elements that plain calls of all kernels may still receive in this process."""
    noted = False
    """True once this process has said that it compiles."""

    def __init__(self, function: FunctionType, small: bool, options: dict[str, Any]) -> None:
        update_wrapper(self, function)
        self.function, self.small, self._options = function, small, options
        self._compiled: Callable[..., Any] | None = None
        self._plain: Callable[..., Any] | None = None

    def __call__(self, *arguments: Any) -> Any:
        if self._compiled is None and self.small and (size := _numbers(arguments)) < Kernel.plain_left:
            Kernel.plain_left -= size
            with np.errstate(over="ignore"):  # unsigned integers wrap around, as they do in compiled code
                return self.plain()(*arguments)
        return self.compiled()(*arguments)

    def plain(self) -> Callable[..., Any]:
        """Return the function as plain Python; small kernels that it calls run plain too, whatever their count."""
        if self._plain is None:
            self._plain = self._calling(lambda kernel: kernel.plain() if kernel.small else kernel)
        return self._plain

    def compiled(self) -> Callable[..., Any]:
        """Return the function compiled by numba, its machine code cached on disk; imports numba."""
        if self._compiled is None:
            import numba

            from corpora.kernel_cache import KernelCache

            function = self._calling(lambda kernel: kernel.compiled())
            options = {name: value for name, value in self._options.items() if name != "cache"}
            self._compiled = numba.njit(**options)(function)
            if self._options.get("cache"):
                try:
                    cast(Any, self._compiled)._cache = KernelCache(function, options, missed=note_compilation)
                except RuntimeError:  # no folder can be written
                    note_compilation()
        return self._compiled

    def _calling(self, form: Callable[[Kernel], Callable[..., Any]]) -> FunctionType:
        """Return a copy of the function that calls the given form of other kernels."""
        function, names = self.function, self.function.__globals__
        called = {name: names[name] for name in function.__code__.co_names if isinstance(names.get(name), Kernel)}
        if not called:
            return function
        names = {**names, **{name: form(kernel) for name, kernel in called.items()}}
        copied = FunctionType(function.__code__, names, function.__name__, function.__defaults__, function.__closure__)
        return cast(FunctionType, update_wrapper(copied, function))


def note_compilation() -> None:
    """Note, once in a process, that it compiles kernels, during which it is silent."""
    if not Kernel.noted:
        Kernel.noted = True
        note("compiles loops for the first use of this command; this may take two minutes")


class Intrinsic(Kernel):
    """A plain Python function with an equivalent numba intrinsic, which has the same name in ``module``."""

    def __init__(self, function: FunctionType, module: str) -> None:
        super().__init__(function, True, {})
        self._module = module

    def compiled(self) -> Callable[..., Any]:
        return cast(Callable[..., Any], getattr(import_module(self._module), self.function.__name__))


def _numbers(arguments: tuple[Any, ...]) -> int:
    """Count the elements of the arrays among the arguments, also inside tuples, plus one for the call."""
    holders = (argument for argument in arguments if isinstance(argument, np.ndarray | tuple))
    return 1 + sum(holder.size if isinstance(holder, np.ndarray) else _numbers(holder) for holder in holders)


@overload
def compiled(function: Function, /) -> Function: ...
@overload
def compiled(*, small: bool = False, **options: Any) -> Callable[[Function], Function]: ...


def compiled(function: Any = None, *, small: bool = False, **options: Any) -> Any:
    """Declare a function to be a ``Kernel``; compiled, it releases the GIL.

    ``options``: for ``numba.njit``, e.g. ``inline="always"`` for a function that is only called by kernels.
    """
    if "inline" not in options:
        options = {"cache": True, "nogil": True, **options}
    declare = lambda function: Kernel(function, small, options)  # noqa: E731
    return declare if function is None else declare(function)


def intrinsic(module: str) -> Callable[[Function], Function]:
    """Declare a plain function to be an ``Intrinsic``."""
    return cast(Any, lambda function: Intrinsic(function, module))


@intrinsic("numba.cpython.unsafe.numbers")
def trailing_zeros(word: np.uint64) -> int:
    """Return the index of the lowest bit of ``word`` that is 1; numba's is of the type of ``word``."""
    return (int(word) & -int(word)).bit_length() - 1
