"""The driver's message to its workers, among Beam's options."""

from __future__ import annotations

import pytest

from corpora.errors import FarspanError
from pipelines.engine.beam.remote.about import OPTION, Driver


def test_the_driver_of_an_option_is_that_of_the_flag():
    driver = Driver("s3://bucket/a b")
    name, _, value = driver.flag().partition("=")
    assert name == f"--{OPTION}"
    assert Driver.among({OPTION: value, "runner": None}) == driver
    assert Driver.among({"runner": None}) is None


def test_other_versions_are_refused():
    Driver("out").require_equal("the worker")
    with pytest.raises(FarspanError, match=r"the worker has farspan .* and the driver farspan 9 under Python 3\.99"):
        Driver("out", "9", "3.99").require_equal("the worker")
