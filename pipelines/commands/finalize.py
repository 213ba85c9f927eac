"""``farspan finalize``."""

from __future__ import annotations

from pipelines.documents.options import Finalize
from pipelines.engine.finalize import finalize
from pipelines.inspect.stats import summary


def command(options: Finalize) -> None:
    """Write the manifest and print its summary.

    Raises:
        FarspanError: as ``finalize``.
    """
    print(f"{options.output}: {summary(finalize(options.output, options.error_budget))}")
