"""Data sets of tasks as readers: what holds for all of them."""

from __future__ import annotations

import pytest

from corpora.errors import FarspanError
from corpora.readers import ReadOptions
from corpora.readers.formats import FORMATS
from corpora.readers.selection import plan_ranges
from corpora.readers.tasks import DATA_SETS
from corpora.storage import files


@pytest.mark.parametrize("name", sorted(set(DATA_SETS) - set(FORMATS)))
@pytest.mark.parametrize("suffix", [".pt", ".pkl"])
def test_a_pickle_is_refused_with_the_cure(tmp_path, name, suffix):
    path = tmp_path / f"train{suffix}"
    path.write_bytes(b"\x80\x04K\x01.")
    with pytest.raises(FarspanError, match=rf"train\{suffix}: a pickle, .* never loaded; save it again as JSON lines"):
        plan_ranges(str(path), files, ReadOptions(format=name), 1 << 20)
