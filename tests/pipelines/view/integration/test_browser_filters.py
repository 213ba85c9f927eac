"""Filters, searches and the rows of an update in Chromium: each field, and the ways to the next row."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pytest

from corpora.schemas.corpus import Corpus
from corpora.tokenizers.load import load_tokenizer_of
from pipelines.pages.row import parts_of
from pipelines.pages.update import read_update
from tests.pipelines.pages.invented import make_run
from tests.pipelines.view.integration.chromium import (
    MARKS,
    Keys,
    Select,
    complaints,
    emulated,
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


@dataclass(frozen=True)
class Row:
    text: str
    ids: list[str]
    tokens: int


@pytest.fixture(scope="module")
def rows(folders) -> list[Row]:
    """The rows of the tales."""
    corpus, tokenizer = Corpus(folders["tales"]), load_tokenizer_of(folders["tales"])
    found = []
    for number in range(len(corpus)):
        ids = [part.document_id for part in parts_of(corpus.take(np.array([number])))]
        tokens = corpus.tokens(number)
        found.append(Row(tokenizer.decode(tokens), ids, len(tokens)))
    return found


def open_filter(browser) -> None:
    if not find(browser, "#filter details").get_attribute("open"):
        find(browser, "#filter summary").click()


def search(browser, **values: str) -> None:
    """Fill in fields of the filter, and press its button."""
    open_filter(browser)
    for name, value in values.items():
        field = find(browser, f"#filter [name={name}]:not([type=hidden])")
        if field.tag_name == "select":
            Select(field).select_by_visible_text(value)
        else:
            field.clear()
            field.send_keys(value)
    find(browser, "#filter button").click()


@pytest.mark.parametrize("field", ["source", "id", "least"])
def test_a_field_leads_to_the_first_row_that_fits(browser, address, rows, field):
    last = rows[-1]
    fields = {"source": {"source": "gardens"}, "id": {"id": last.ids[-1]}}
    fields["least"] = dict.fromkeys(("least", "most"), str(last.tokens))
    fits = {
        "source": lambda row: any(name.startswith("gardens:") for name in row.ids),
        "id": lambda row: any(last.ids[-1] in name for name in row.ids),
        "least": lambda row: row.tokens == last.tokens,
    }
    browser.get(address + "tales/0")
    open_filter(browser)
    assert texts(browser, "select[name=source] option") == ["any", "gardens", "tales"]
    search(browser, **fields[field])
    wait(browser, lambda: f"{field}=" in browser.current_url)
    wait_for_row(browser, next(number for number, row in enumerate(rows) if fits[field](row)))


def test_by_what_is_hidden(browser, address, rows):
    hidden = []
    for row in range(len(rows)):
        browser.get(f"{address}tales/{row}")
        note = find(browser, ".column:nth-child(2) .note").text
        hidden.append(float(re.search(r"([\d.]+) % of the row", note)[1]))
    assert len(set(hidden)) > 1
    most = hidden.index(max(hidden))
    browser.get(address + "tales/0")
    search(browser, least_hidden=f"{hidden[most] - 0.06:.2f}", masks="pegasus")
    wait(browser, lambda: "least_hidden" in browser.current_url)
    wait_for_row(browser, most)
    assert Select(find(browser, "select[name=masks]")).first_selected_option.text == "pegasus"


def test_by_text(browser, address):
    browser.get(address + "tales/0")
    press(browser, "/")
    browser.switch_to.active_element.send_keys("PAINTER CAME", Keys.ENTER)
    wait(browser, lambda: "text=PAINTER" in browser.current_url)
    wait(browser, lambda: "painter came" in find(browser, "main").text)
    assert find(browser, ".filter details").get_attribute("open")
    press(browser, "/")
    wait(browser, lambda: find(browser, "#filter input[name=text]").is_displayed())
    find(browser, "#filter input[name=text]").send_keys(Keys.CONTROL, "a", Keys.NULL, "nobody wrote this", Keys.ENTER)
    wait(browser, lambda: "fits" in find(browser, "#scan").text)
    assert "No row fits" in find(browser, "#scan").text


def test_next_previous_and_random_keep_to_the_filter(browser, address, rows):
    fits = [number for number, row in enumerate(rows) if "bridge of Port Ostra" in row.text]
    assert 2 <= len(fits) < len(rows)
    browser.get(f"{address}tales/{fits[0]}?text=bridge+of+Port+Ostra")
    find(browser, "#next").click()
    wait_for_row(browser, fits[1])
    press(browser, "k")
    wait_for_row(browser, fits[0])
    find(browser, "#next").click()
    wait_for_row(browser, fits[1])
    find(browser, "#previous").click()
    wait_for_row(browser, fits[0])
    assert "text=bridge" in browser.current_url
    for _ in range(4):
        old = find(browser, "main")
        find(browser, "#random").click()
        wait(browser, lambda main: find(browser, "main") != main, old)
        assert int(find(browser, "body").get_attribute("data-row")) in fits
    find(browser, ".fields a").click()
    wait(browser, lambda: "text=" not in browser.current_url)
    assert find(browser, "#filter input[name=text]").get_attribute("value") == ""


def test_a_search_shows_its_progress_and_stops(browser, address):
    browser.get(address + "tales/0")
    slow = {"offline": False, "latency": 5_000, "downloadThroughput": -1, "uploadThroughput": -1}
    browser.execute_cdp_cmd("Network.enable", {})
    with emulated(browser, "Network.emulateNetworkConditions", "Network.disable", slow):
        search(browser, text="no such text")
        wait(browser, lambda: "Searching" in find(browser, "#scan").text)
        assert find(browser, "#scan progress").is_displayed()
        find(browser, "#scan button").click()
        wait(browser, lambda: "Stopped after 0 rows" in find(browser, "#scan").text)
        find(browser, "#filter button").click()
        wait(browser, lambda: "Searching" in find(browser, "#scan").text)
        press(browser, Keys.ESCAPE)
        wait(browser, lambda: "Stopped" in find(browser, "#scan").text)


def test_a_value_that_is_no_number(browser, address):
    browser.get(address + "tales/0")
    search(browser, least="many")
    wait(browser, lambda: "give a number of tokens" in find(browser, "#scan").text)
    assert [line for line in complaints(browser) if "400" not in line["message"]] == []


def test_another_draw(browser, address):
    browser.get(address + "families/0")
    seen = [texts(browser, ".column:nth-child(2) .block.prose mark")]
    open_filter(browser)
    search(browser, draw="1")
    wait(browser, lambda: "draw=1" in browser.current_url)
    wait(browser, lambda: "1 of 2" in find(browser, ".facts").text)
    seen.append(texts(browser, ".column:nth-child(2) .block.prose mark"))
    assert seen[0]
    assert seen[0] != seen[1]


def test_the_address_can_be_passed_on(browser, address):
    browser.get(address + "tales/0?theme=dark")
    search(browser, text="moss garden")
    wait(browser, lambda: "text=moss" in browser.current_url)
    press(browser, "b")
    wait(browser, lambda: "brackets=1" in browser.current_url)
    given, heading = browser.current_url, find(browser, "main h2").text
    browser.switch_to.new_window("tab")
    try:
        browser.get(given)
        assert find(browser, "main h2").text == heading
        assert find(browser, "#filter input[name=text]").get_attribute("value") == "moss garden"
        assert find(browser, "html").get_attribute("data-theme") == "dark"
        assert "brackets" in find(browser, "body").get_attribute("class")
    finally:
        browser.close()
        browser.switch_to.window(browser.window_handles[0])


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
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment, process_group=0)
    try:
        assert process.stdout is not None
        yield json.loads(process.stdout.readline())["address"]
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0
    finally:
        process.kill()
        process.wait()


def test_the_rows_of_an_update(browser, run, served):
    browser.get(served)
    assert browser.title == f"tiny-step-{STEP} · farspan"
    assert len(find_all(browser, ".rows tbody tr")) == 9
    find(browser, ".rows tbody a").click()
    for row, seen in enumerate(read_update(run, STEP).rows):
        wait_for_row(browser, row)
        assert find(browser, "main h2").text == f"update {STEP}, row {row} of 9"
        found = dict(zip(texts(browser, ".facts dt"), texts(browser, ".facts dd"), strict=True))
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
