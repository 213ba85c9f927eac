"""The pages in Chromium: each feature used as a reader would, and pictures taken for docs/view.md.

``FARSPAN_SCREENSHOTS=FOLDER`` keeps the pictures; ``make screenshots`` puts them into the docs.
"""

from __future__ import annotations

import os
import shutil
import threading
from base64 import b64decode
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytest.importorskip("starlette", reason="farspan[view] is not installed")
webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
import uvicorn
from selenium.common.exceptions import WebDriverException
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait

from pipelines.view.app import build_app
from pipelines.view.command import command
from pipelines.view.opened import open_subjects
from pipelines.view.options import View
from tests.pipelines.view.invented import make_hostile, make_tales

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --hide-scrollbars --force-color-profile=srgb"
)
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="chromium or chromedriver is not installed"),
]


@pytest.fixture(scope="module")
def folders(tmp_path_factory) -> dict[str, str]:
    root = tmp_path_factory.mktemp("tales")
    return {**make_tales(str(root)), "hostile": make_hostile(str(root / "hostile"))}


@pytest.fixture(scope="module")
def address(folders) -> Iterator[str]:
    """Where the pages are served."""
    names = ("tales", "t5", "pegasus", "cdlm", "linked", "long-model", "lead", "hostile")
    app = build_app(open_subjects(View(artefact=tuple(folders[name] for name in names))), "secret")
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error", lifespan="off", ws="none"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        thread.join(0.05)
        assert thread.is_alive()
    port = server.servers[0].sockets[0].getsockname()[1]
    yield f"http://127.0.0.1:{port}/secret/"
    server.should_exit = True
    thread.join(10)


@pytest.fixture(scope="module")
def started(tmp_path_factory) -> Iterator[webdriver.Chrome]:
    options = webdriver.ChromeOptions()
    for flag in (*FLAGS.split(), f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(flag)
    options.binary_location = CHROMIUM
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(DRIVER))
    yield driver
    driver.quit()


@pytest.fixture
def browser(started) -> Iterator[webdriver.Chrome]:
    """The browser; a page that complains fails its test."""
    started.set_window_size(1400, 1100)
    yield started
    complaints = [line for line in started.get_log("browser") if line["level"] in ("SEVERE", "WARNING")]
    assert complaints == []


def find(browser, css: str):
    return browser.find_element(By.CSS_SELECTOR, css)


def press(browser, keys: str) -> None:
    find(browser, "body").send_keys(keys)


def wait(browser, until: Callable[[], object]) -> None:
    WebDriverWait(browser, 20, 0.05, [WebDriverException]).until(lambda _: until())


def take_picture(browser, name: str, width: int, height: int) -> None:
    """Keep a picture, if pictures are wanted."""
    if folder := os.environ.get("FARSPAN_SCREENSHOTS"):
        browser.set_window_size(width, height + 143)  # of which the head of a window takes this
        Path(folder).mkdir(parents=True, exist_ok=True)
        taken = browser.execute_cdp_cmd("Page.captureScreenshot", {"format": "webp", "quality": 85})
        Path(folder, f"{name}.webp").write_bytes(b64decode(taken["data"]))


def fits_the_width(browser) -> bool:
    """True if nothing is wider than the window."""
    return browser.execute_script("return document.documentElement.scrollWidth <= window.innerWidth")


def test_three_objectives_side_by_side(browser, address):
    browser.get(address + "tales/0?theme=light")
    columns = browser.find_elements(By.CSS_SELECTOR, ".column")
    assert [column.find_element(By.TAG_NAME, "h3").text for column in columns] == ["t5", "pegasus", "cdlm"]
    assert len({column.rect["y"] for column in columns}) == 1
    for kind in ("hidden", "shown"):
        assert browser.find_elements(By.CSS_SELECTOR, f"mark.k-{kind}")
    lines = {
        browser.execute_script("return getComputedStyle(arguments[0]).textDecorationStyle", mark)
        for mark in (find(browser, f"mark.k-{kind}") for kind in ("hidden", "shown", "replaced"))
    }
    assert lines == {"solid", "double", "wavy"}  # told apart without colour
    assert "<sentinel-0>" in find(browser, ".seen").text
    assert fits_the_width(browser)
    take_picture(browser, "view-objectives", 1400, 1000)


def test_a_reason_leads_to_its_span(browser, address):
    browser.get(address + "tales/0")
    line = find(browser, ".why tr")
    browser.execute_script("arguments[0].click()", line)
    wait(browser, lambda: browser.find_elements(By.CSS_SELECTOR, "mark.arrived"))
    mark = find(browser, "mark.arrived")
    assert mark.text.split()[:3] == line.find_element(By.CSS_SELECTOR, ".said bdi").text.split()[:3]
    assert browser.execute_script(
        "const r = arguments[0].getBoundingClientRect(); return r.top > 0 && r.bottom < innerHeight", mark
    )


def test_keys_and_buttons(browser, address):
    browser.get(address + "tales/0")
    press(browser, "j")
    wait(browser, lambda: "/tales/1" in browser.current_url)
    press(browser, "k")
    wait(browser, lambda: "/tales/0" in browser.current_url)
    find(browser, "#next").click()
    wait(browser, lambda: "/tales/1" in browser.current_url)
    press(browser, "r")
    wait(browser, lambda: "/tales/" in browser.current_url)
    press(browser, "g")
    browser.switch_to.active_element.send_keys("2", Keys.ENTER)
    wait(browser, lambda: "/tales/2" in browser.current_url)
    press(browser, "?")
    assert find(browser, "#keys").is_displayed()
    find(browser, "#keys button").click()
    assert not find(browser, "#keys").is_displayed()


def test_looks_are_kept_in_the_address(browser, address):
    browser.get(address + "tales/0?theme=light")
    ground = "return getComputedStyle(document.body).backgroundColor"
    light = browser.execute_script(ground)
    press(browser, "d")
    assert browser.execute_script(ground) != light
    press(browser, "b")
    content = "return getComputedStyle(document.querySelector('.text mark.k-hidden'), '::before').content"
    assert "⟦" in browser.execute_script(content)
    assert "theme=dark" in browser.current_url
    press(browser, "j")
    wait(browser, lambda: "/tales/1" in browser.current_url)
    assert "theme=dark" in browser.current_url
    assert "brackets=1" in browser.current_url
    assert "⟦" in browser.execute_script(content)


def test_tokens_on_demand(browser, address):
    browser.get(address + "tales/0")
    text = find(browser, ".block .text")
    before = text.text
    press(browser, "t")
    wait(browser, lambda: browser.find_elements(By.CSS_SELECTOR, ".block .token"))
    wait(browser, lambda: text.find_elements(By.CSS_SELECTOR, ".token"))
    ids = [part.text for part in text.find_elements(By.CSS_SELECTOR, ".token i")]
    assert len(ids) > 5
    assert all(number.isdigit() for number in ids)
    press(browser, "t")
    wait(browser, lambda: text.text == before)


def test_a_filter_finds_and_keeps(browser, address):
    browser.get(address + "tales/0")
    press(browser, "/")
    browser.switch_to.active_element.send_keys("PAINTER CAME", Keys.ENTER)
    wait(browser, lambda: "text=PAINTER" in browser.current_url)
    wait(browser, lambda: browser.execute_script("return document.readyState") == "complete")
    wait(browser, lambda: "painter came" in find(browser, "main").text)
    assert find(browser, ".filter details").get_attribute("open")
    press(browser, "/")
    wait(browser, lambda: find(browser, "#filter input[name=text]").is_displayed())
    find(browser, "#filter input[name=text]").send_keys(Keys.CONTROL, "a", Keys.NULL, "nobody wrote this", Keys.ENTER)
    wait(browser, lambda: "fits" in find(browser, "#scan").text)
    assert "No row from row" in find(browser, "#scan").text


def test_a_linked_row(browser, address):
    browser.get(address + "linked/0?theme=dark")
    steps = [step.text for step in browser.find_elements(By.CSS_SELECTOR, ".chain .step")]
    assert steps[0] == "first"
    assert sum(step[0].isdigit() or step[0] == "-" for step in steps) > 0
    assert fits_the_width(browser)
    take_picture(browser, "view-linked", 1200, 800)


def test_predictions_beside_the_reference(browser, address):
    browser.get(address + "long-model/0?theme=light")
    heads = [head.text for head in browser.find_elements(By.CSS_SELECTOR, ".band h3")]
    assert heads[:3] == ["reference", "long-model", "lead"]
    assert (
        "Mira Valen"
        in find(browser, ".column:nth-child(2) mark.k-shared").text + find(browser, ".column:nth-child(2)").text
    )
    assert "rouge1" in find(browser, ".column:nth-child(2) .note").text
    take_picture(browser, "view-predictions", 1400, 800)


def test_nothing_in_a_hostile_text_acts(browser, address):
    browser.set_page_load_timeout(30)
    for row in range(4):
        browser.get(f"{address}hostile/{row}?theme=light")
        assert browser.title.startswith(f"{row} · hostile")
        assert find(browser, "main h2").is_displayed()
        assert fits_the_width(browser)
        assert not browser.find_elements(By.CSS_SELECTOR, "main script, main img, main style, main [onmouseover]")
        if row == 2:
            take_picture(browser, "view-hostile-directions", 1000, 500)
    browser.get(address + "hostile/0?theme=light")
    assert "<script>document.title" in find(browser, ".text").text
    take_picture(browser, "view-hostile", 1000, 520)


def test_thirty_megabytes_in_a_line_are_folded(browser, address):
    browser.get(address + "hostile/4")
    assert len(browser.page_source) < 100_000
    text = find(browser, ".text")
    before = len(text.text)
    find(browser, ".more").click()
    wait(browser, lambda: len(text.text) > 2 * before)
    assert "more of" in find(browser, ".more").text
    assert fits_the_width(browser)


def test_a_phone(browser, address):
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride", {"width": 390, "height": 800, "deviceScaleFactor": 1, "mobile": True}
    )
    try:
        for path in ("", "tales/0", "linked/0", "long-model/0", "hostile/3", "tales/0?tokens=1"):
            browser.get(address + path)
            assert fits_the_width(browser), path
        columns = browser.find_elements(By.CSS_SELECTOR, ".column")
        assert len({column.rect["x"] for column in columns}) == 1
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_a_saved_page_works_by_itself(browser, folders, tmp_path):
    page = tmp_path / "page.html"
    command(View(artefact=(folders["t5"], folders["pegasus"]), save=str(page), count=2))
    browser.get(page.as_uri())
    assert len(browser.find_elements(By.CSS_SELECTOR, ".saved")) == 2
    press(browser, "b")
    assert "⟦" in browser.execute_script(
        "return getComputedStyle(document.querySelector('mark.k-hidden'), '::before').content"
    )
    first = browser.execute_script("return scrollY")
    press(browser, "j")
    wait(browser, lambda: browser.execute_script("return scrollY") > first)
