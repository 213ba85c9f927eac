"""Folders, tables and runs in Chromium, and rows of denoisers, with pictures for the documentation."""

from __future__ import annotations

import pytest

from pipelines.view.command import command
from pipelines.view.options import View
from tests.pipelines.view.integration.chromium import (
    MARKS,
    emulated,
    find,
    find_all,
    fits_the_width,
    press,
    style,
    take_picture,
    texts,
    wait,
)
from trainer.checkpoint.run_files import seal_line

pytestmark = MARKS


def test_the_overview_leads_to_tables_and_runs(browser, whole_folder):
    browser.get(whole_folder + "?theme=light")
    kinds = dict(zip(texts(browser, ".graph .name"), texts(browser, ".graph .name + text"), strict=True))
    assert kinds["tales"] == "corpus, 4 rows"
    assert kinds["runs/base"] == "run, stopped"
    assert len(find_all(browser, ".graph path")) > 10
    assert fits_the_width(browser)
    take_picture(browser, "view-folder", 1200, 760)
    press(browser, "d")
    assert "theme=dark" in browser.current_url
    find(browser, ".graph a[href*='/tales/']").click()
    wait(browser, lambda: browser.title == "tales · farspan")
    assert find(browser, "html").get_attribute("data-theme") == "dark"
    browser.back()
    wait(browser, lambda: find_all(browser, ".top nav a"))
    find(browser, ".top nav a").click()
    wait(browser, lambda: find_all(browser, ".panel"))


def test_columns_sort_and_bars_filter(browser, whole_folder):
    browser.get(whole_folder + "documents/?theme=light")
    tokens = [int(text) for text in texts(browser, ".rows tbody td:nth-child(2)")]
    assert len(tokens) == 18
    for expected in (sorted(tokens, reverse=True), sorted(tokens)):
        find(browser, ".rows th:nth-child(2) > a").click()
        wait(
            browser,
            lambda expected=expected: [int(t) for t in texts(browser, ".rows tbody td:nth-child(2)")] == expected,
        )
    bar = find(browser, ".rows th:nth-child(4) svg a:nth-of-type(2)")
    assert bar.get_attribute("textContent").strip() == "gardens: 4"
    bar.click()
    wait(browser, lambda: "source=gardens" in browser.current_url)
    wait(browser, lambda: texts(browser, ".rows tbody td:nth-child(4)") == ["gardens"] * 4)
    browser.get(whole_folder + "tales/?theme=light")
    take_picture(browser, "view-table", 1400, 420)


def test_curves_grow_and_spikes_lead_to_rows(browser, whole_folder, runs):
    browser.get(whole_folder + "runs/?theme=light")
    assert [one.strip() for one in texts(browser, "figcaption")][:2] == ["loss", "held-out loss"]
    assert len(find_all(browser, ".panels .column:first-child polyline:not(.faint)")) == 2
    assert "lost boats came home" in find(browser, ".texts mark.k-shared:last-of-type").text
    take_picture(browser, "view-runs", 1200, 900)
    with (runs / "base" / "metrics.jsonl").open("ab") as file:
        file.write(seal_line({"step": 301, "loss": 2.6}))
    wait(browser, lambda: "301" in find(browser, ".rows tbody").text)  # without another request by the reader
    find(browser, ".panel a").click()
    wait(browser, lambda: browser.title == "base-step-205 · farspan")
    assert len(find_all(browser, ".rows tbody tr")) == 9


def test_folders_tables_and_runs_on_a_phone(browser, whole_folder):
    phone = {"width": 390, "height": 800, "deviceScaleFactor": 1, "mobile": True}
    with emulated(browser, "Emulation.setDeviceMetricsOverride", "Emulation.clearDeviceMetricsOverride", phone):
        for path in ("", "tales/", "documents/?text=moss", "runs/", "lead/"):
            browser.get(whole_folder + path)
            assert fits_the_width(browser), path


def test_curves_are_saved_with_their_colours(browser, runs, tmp_path):
    page = tmp_path / "runs.html"
    command(View(artefact=(str(runs / "base"), str(runs / "sentences")), save=str(page)))
    browser.get(page.as_uri())
    assert len(find_all(browser, ".panel")) == 5
    colours = {line.value_of_css_property("stroke") for line in find_all(browser, ".panel polyline:not(.faint)")}
    assert len(colours) == 2
    assert style(browser, ".panel .faint", "opacity") == "0.3"


@pytest.mark.parametrize(
    ("objective", "options", "layout", "name"),
    [
        ("ul2", {}, "source_target", "view-ul2"),
        ("fill_in_the_middle", {"append": True}, "source_target", "view-fim"),
        ("t5", {}, "stream", "view-stream"),
    ],
)
def test_rows_of_denoisers_and_streams(browser, folders, tmp_path, objective, options, layout, name):
    page, chosen = tmp_path / "page.html", {"objective": (objective,), "options": options, "layout": layout}
    command(View(artefact=(folders["tales"],), save=str(page), count=1, **chosen))
    browser.get(page.as_uri())
    assert find_all(browser, ".seen .special")
    assert bool(find_all(browser, ".seen .attended")) == (layout == "stream")
    take_picture(browser, name, 1300, 640)
