"""Errors of all processes are reported once a machine, those of one process by itself."""

from __future__ import annotations

import pytest

from corpora.errors import FarspanError
from pipelines import cli
from trainer.parallel.reports import is_reporter, raised_alike


def raised(alike: bool) -> FarspanError:
    try:
        if alike:
            with raised_alike():
                raise FarspanError("x")
        raise FarspanError("x")
    except FarspanError as error:
        return error


@pytest.mark.parametrize(
    ("alike", "environment", "reported"),
    [
        (True, {}, True),
        (True, {"RANK": "0", "LOCAL_RANK": "0"}, True),
        (True, {"RANK": "1", "LOCAL_RANK": "1"}, False),
        (True, {"RANK": "8", "LOCAL_RANK": "0"}, True),  # another machine, with a disk of its own
        (False, {"RANK": "1", "LOCAL_RANK": "1"}, True),
    ],
)
def test_the_first_process_of_a_machine_reports_for_all(alike, environment, reported):
    assert is_reporter(raised(alike), environment) == reported


def command(arguments):
    with pytest.raises(SystemExit) as ended:
        cli.main(["train", *arguments])
    return ended.value.code


@pytest.mark.parametrize("words", [["tine"], ["tiny", "--set", "run.stepz=1"], ["tiny", "--fast"]])
def test_under_torchrun_a_wrong_command_is_one_line(monkeypatch, capsys, words):
    """Every process ends with the same status; only the first one says why."""
    monkeypatch.setattr(cli, "leave", lambda status: (_ for _ in ()).throw(SystemExit(status)))
    said = []
    for rank in ("0", "1"):
        for name in ("RANK", "LOCAL_RANK"):
            monkeypatch.setenv(name, rank)
        assert command(words) == 1
        said.append(capsys.readouterr().err.splitlines())
    assert [len(lines) for lines in said] == [1, 0]
