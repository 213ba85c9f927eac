"""The command in this process."""

from __future__ import annotations

import sys

import pytest

from pipelines.cli import main


@pytest.fixture
def run(capsys, monkeypatch):
    """Run a command in this process: (status, output, errors)."""
    monkeypatch.setattr("pipelines.cli.leave", sys.exit)

    def call(*arguments):
        status = 0
        try:
            main([str(argument) for argument in arguments])
        except SystemExit as ended:
            status = int(ended.code or 0)
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return call
