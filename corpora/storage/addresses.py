"""Memory access by address for compiled kernels; importing this module imports numba."""

from __future__ import annotations

from typing import Any

from numba.core import cgutils, types
from numba.extending import intrinsic


@intrinsic
def at(typing: Any, address: types.Type) -> Any:
    """Read the int64 at an address."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        number = context.get_value_type(types.int64)
        return builder.load(builder.inttoptr(arguments[0], number.as_pointer()))

    return types.int64(types.int64), generate


@intrinsic
def move(typing: Any, target: types.Type, source: types.Type, size: types.Type) -> Any:
    """Copy bytes from one address to another."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        byte = context.get_value_type(types.uint8).as_pointer()
        target, source = (builder.inttoptr(address, byte) for address in arguments[:2])
        cgutils.raw_memcpy(builder, target, source, arguments[2], 1)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), generate
