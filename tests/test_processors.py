"""Another processor, the same result."""

import os
import platform

import pytest

from objectives.api.protocol import OBJECTIVES
from tests.processors import digests, digests_elsewhere

MAY_DIFFER = {"matrix product", "cosines"}


EVERY = sorted(OBJECTIVES.installed())


@pytest.fixture(scope="module", params=[["span"], pytest.param(EVERY, marks=pytest.mark.slow)], ids=" ".join)
def both(request) -> list[dict[str, str]]:
    """Digests of both processors; kernels are compiled anew for the other one, those of most objectives for long."""
    return [digests(*request.param), digests_elsewhere(*request.param)]


def test_results_do_not_depend_on_the_processor(both):
    here, there = both
    assert here.keys() == there.keys()
    assert {name for name in here if here[name] != there[name]} <= MAY_DIFFER


@pytest.mark.skipif(platform.machine() != "x86_64", reason="no settings for other processors")
@pytest.mark.skipif(os.environ.get("NUMBA_CPU_NAME") == "generic", reason="this process is on the other one already")
def test_the_other_processor_is_another_one(both):
    """Matrix products differ; else the test above could not fail."""
    here, there = both
    assert here["matrix product"] != there["matrix product"]
