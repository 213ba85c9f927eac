"""The driver's message to its workers, as an option of Beam: the job's folder, and the versions to share."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from corpora.errors import FarspanError
from corpora.storage.manifest import farspan_version

OPTION = "farspan_driver"
_PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"


@dataclass(frozen=True)
class Driver:
    """The process that submitted a job.

    Attributes:
        output: folder of the job.
        farspan, python: versions; a worker's must be equal, because code travels pickled and determines the output.
    """

    output: str
    farspan: str = farspan_version()
    python: str = _PYTHON

    def flag(self) -> str:
        """The flag of Beam that carries it."""
        return f"--{OPTION}={json.dumps(asdict(self))}"

    @classmethod
    def among(cls, options: Mapping[str, Any]) -> Driver | None:
        """The driver that a pipeline's options name; None for a pipeline of another program's."""
        text = options.get(OPTION)
        return cls(**json.loads(text)) if text else None

    def require_equal(self, here: str) -> None:
        """Refuse to work for a driver with other versions.

        Args:
            here: what has the versions of this process, for the message.

        Raises:
            FarspanError: naming both.
        """
        mine = Driver(self.output)
        if self != mine:
            raise FarspanError(
                f"{here} has farspan {mine.farspan} under Python {mine.python}, and the driver farspan {self.farspan} "
                f"under Python {self.python}; install the same on both"
            )
