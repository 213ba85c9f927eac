"""Kernels: loops over arrays, which numba compiles where there is enough to do.

To import numba and load one compiled kernel takes more than a second. So numba is imported by the first call that needs
it, and kernels declared ``small`` run as plain Python, with equal results, until they have seen as many numbers as that
second is worth.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import update_wrapper
from types import FunctionType
from typing import Any, TypeVar, cast, overload

import numpy as np

Function = TypeVar("Function", bound=Callable[..., Any])

_PLAIN = 1 << 15
"""Numbers in the arguments of plain calls of a process, at up to 10 us each; after them all kernels are compiled."""


class Kernel:
    """A function that numba compiles at its first call, or later.

    A kernel may call other kernels, of any module. numba's cache on disk is used as by ``numba.njit(cache=True)``.

    Args:
        function: in the subset of Python that numba compiles.
        small: True if calls on little data may run as plain Python. The function must then give the same bits, which
            ``tests/test_small_kernels.py`` checks: numbers that it takes from arrays keep their dtype in Python, where
            numba widens small integers to 64 bits.
        options: for ``numba.njit``.
    """

    plain_left = _PLAIN
    """Numbers that calls of all kernels may still see as plain Python in this process."""

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
        """The function as plain Python; small kernels that it calls run plain too, however much they have seen."""
        if self._plain is None:
            self._plain = self._calling(lambda kernel: kernel.plain() if kernel.small else kernel)
        return self._plain

    def compiled(self) -> Callable[..., Any]:
        """The function as numba compiles it; imports numba."""
        if self._compiled is None:
            import numba

            self._compiled = numba.njit(**self._options)(self._calling(lambda kernel: kernel.compiled()))
        return self._compiled

    def _calling(self, form: Callable[[Kernel], Callable[..., Any]]) -> FunctionType:
        """The function, calling that form of every kernel it names."""
        function, names = self.function, self.function.__globals__
        called = {name: names[name] for name in function.__code__.co_names if isinstance(names.get(name), Kernel)}
        if not called:
            return function
        names = {**names, **{name: form(kernel) for name, kernel in called.items()}}
        copied = FunctionType(function.__code__, names, function.__name__, function.__defaults__, function.__closure__)
        return cast(FunctionType, update_wrapper(copied, function))


class Intrinsic(Kernel):
    """A function of plain Python with an equivalent in numba's own terms.

    Args:
        load: imports and returns numba's.
    """

    def __init__(self, function: FunctionType, load: Callable[[], Any]) -> None:
        super().__init__(function, True, {})
        self._load = load

    def compiled(self) -> Callable[..., Any]:
        return self._load()


def _numbers(arguments: tuple[Any, ...]) -> int:
    """Numbers in the arrays among the arguments, also inside tuples, and one for the call."""
    arrays = (one.size if isinstance(one, np.ndarray) else _numbers(one) for one in arguments if _holds(one))
    return 1 + sum(arrays)


def _holds(argument: Any) -> bool:
    return isinstance(argument, np.ndarray | tuple)


@overload
def compiled(function: Function, /) -> Function: ...
@overload
def compiled(*, small: bool = False, **options: Any) -> Callable[[Function], Function]: ...


def compiled(function: Any = None, *, small: bool = False, **options: Any) -> Any:
    """Declare a function to be a ``Kernel``; it releases Python's lock.

    Args:
        options: for ``numba.njit``, e.g. ``inline="always"`` for a function that is only called by kernels.
    """
    if "inline" not in options:
        options = {"cache": True, "nogil": True, **options}
    declare = lambda function: Kernel(function, small, options)  # noqa: E731
    return declare if function is None else declare(function)


def intrinsic(load: Callable[[], Any]) -> Callable[[Function], Function]:
    """Declare a plain function to be an ``Intrinsic``."""
    return cast(Any, lambda function: Intrinsic(function, load))
