"""Numpy arrays as files anywhere, for what one stage hands to the next."""

from __future__ import annotations

import io

import numpy as np

from corpora.files import read_bytes, write_bytes
from pipelines.beam_files import files_for


def read_array(path: str) -> np.ndarray:
    return np.load(io.BytesIO(read_bytes(files_for(path), path)), allow_pickle=False)


def write_array(path: str, values: np.ndarray) -> None:
    file = io.BytesIO()
    np.save(file, values, allow_pickle=False)
    write_bytes(files_for(path), path, file.getvalue())
