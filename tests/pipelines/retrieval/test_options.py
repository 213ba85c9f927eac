"""Options from documents to neighbours."""

from __future__ import annotations

import pytest

from corpora.errors import FarspanError
from pipelines.retrieval.options import EncoderOptions


def test_options_out_of_range():
    with pytest.raises(FarspanError, match="--threads 0: give a positive number"):
        EncoderOptions(threads=0)
    with pytest.raises(FarspanError, match="--max-length -1"):
        EncoderOptions(max_length=-1)
