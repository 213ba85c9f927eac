"""``farspan view RUN --step N`` in Chromium, served by the command itself."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from pipelines.pages.update import read_update
from tests.pipelines.pages.invented import make_run
from tests.pipelines.view.integration.chromium import (
    MARKS,
    find,
    find_all,
    fits_the_width,
    press,
    take_picture,
    texts,
    wait,
    wait_for_row,
)
from trainer.data.config import ObjectiveConfig, SourceConfig, TaskConfig

pytestmark = MARKS
STEP = 7


@pytest.fixture(scope="module")
def run(folders, tmp_path_factory) -> str:
    """A run on stored masks, drawn masks and pairs."""
    task = TaskConfig(options={"separator": "<doc-sep>", "source_length": 1024, "target_length": 64})
    mixture = (
        SourceConfig(name="related", corpus=folders["tales"], masks=folders["t5"]),
        SourceConfig(name="linked", corpus=folders["linked"], objective=ObjectiveConfig(name="span", preset="t5")),
        SourceConfig(name="questions", pairs=folders["pairs"], split="validation", task=task),
    )
    return make_run(str(tmp_path_factory.mktemp("runs") / "tiny"), mixture, folders["tales"])


@pytest.fixture(scope="module")
def served(run) -> Iterator[str]:
    """The address that the command prints; Ctrl-C ends it without an error."""
    command = [sys.executable, "-m", "pipelines", "view", run, "--step", str(STEP), "--log-format", "json"]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONUNBUFFERED": "1"}, process_group=0
    )
    try:
        assert process.stdout is not None
        yield json.loads(process.stdout.readline())["address"]
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0
    finally:
        process.kill()
        process.wait()


def facts(browser) -> dict[str, str]:
    return dict(zip(texts(browser, ".facts dt"), texts(browser, ".facts dd"), strict=True))


def test_the_rows_of_an_update(browser, run, served):
    browser.get(served)
    assert browser.title == f"tiny-step-{STEP} · farspan"
    assert len(find_all(browser, ".rows tbody tr")) == 9
    find(browser, ".rows tbody a").click()
    for row, seen in enumerate(read_update(run, STEP).rows):
        wait_for_row(browser, row)
        assert find(browser, "main h2").text == f"update {STEP}, row {row} of 9"
        found = facts(browser)
        assert found["source"] == seen.source
        assert found["process"] == f"rank {seen.rank}, micro-batch {seen.micro_batch}"
        assert texts(browser, ".seen .block h4 .name")[:2] == ["source", "target"]
        assert find_all(browser, ".seen .block .special" if seen.source != "questions" else ".seen .block")
        assert fits_the_width(browser)
        if row < 8:
            press(browser, "j")


def test_a_picture_of_it(browser, run, served):
    row = next(row for row, seen in enumerate(read_update(run, STEP).rows) if seen.source == "related")
    browser.get(f"{served}tiny-step-{STEP}/{row}?theme=light")
    assert find_all(browser, "mark.k-hidden")
    take_picture(browser, "view-update", 1200, 900)


def test_tokens_and_filters_of_an_update(browser, run, served):
    browser.get(f"{served}tiny-step-{STEP}/0")
    press(browser, "t")
    wait(browser, lambda: find_all(browser, ".token i"))
    press(browser, "/")
    browser.switch_to.active_element.send_keys("moss\n")
    wait(browser, lambda: "text=moss" in browser.current_url)
    assert "moss" in find(browser, "main").text.lower()
