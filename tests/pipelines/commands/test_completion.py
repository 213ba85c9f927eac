"""``farspan completion``."""

from __future__ import annotations

import pytest


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_knows_commands_flags_and_choices(run, shell):
    status, out, _ = run("completion", shell)
    assert status == 0
    for word in ("check-objective", "whole-documents", "held-out"):
        assert word in out
