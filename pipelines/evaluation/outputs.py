"""Check that no file to be written is one of the predictions that are read."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from corpora.errors import FarspanError
from corpora.schemas.predictions import TEXTS
from corpora.storage.manifest_file import NAME
from pipelines.evaluation.systems import is_json


def check_outputs(outputs: Mapping[str, str | None], predictions: Sequence[str]) -> None:
    """Check, before any work, that no output, by its flag, replaces one of the predictions that are read."""
    files = [[name] if is_json(name) else [os.path.join(name, own) for own in (NAME, TEXTS)] for name in predictions]
    read = {os.path.realpath(path) for own in files for path in own}
    for flag, path in outputs.items():
        if path is not None and os.path.realpath(path) in read:
            raise FarspanError(f"{flag}: would replace {path}, which is read; give another name")
