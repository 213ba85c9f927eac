"""Paths as jobs pass them on."""

from __future__ import annotations

from pipelines.engine.artefacts import absolute


def test_equal_folders_have_equal_paths():
    assert absolute("attic://bucket/a/") == absolute("attic://bucket/a")
