"""The limit on a process's address space (``ulimit -v``)."""

from __future__ import annotations

import os
import resource

from corpora.errors import FarspanError

_LEAST, _PER_CORE = 3 << 30, 256 << 20  # bytes: libraries and their arenas; stacks and arenas of a core's threads


def check_address_space() -> None:
    """Check that the libraries fit into the address space, before any is imported.

    They reserve far more than they use. With too little, they abort, hang or send themselves signals: nothing can be
    reported any more.
    """
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    needed = _LEAST + _PER_CORE * len(os.sched_getaffinity(0))
    if limit != resource.RLIM_INFINITY and limit < needed:
        raise FarspanError(
            f"this process may have {limit >> 20:,} MiB of address space, and farspan reserves up to {needed >> 20:,} "
            "MiB, most of which it never uses; raise the limit (ulimit -v), or limit used memory by a control group"
        )
