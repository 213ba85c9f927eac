"""Chromium as a reader uses it: keys, clicks, waiting, and pictures of pages.

``FARSPAN_SCREENSHOTS=FOLDER`` keeps the pictures; ``make screenshots`` puts them into the docs.
"""

import os
import shutil
from base64 import b64decode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette", reason="farspan[view] is not installed")
webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
from selenium.common.exceptions import WebDriverException
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.action_chains import ActionChains as ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys as Keys
from selenium.webdriver.support.ui import Select as Select
from selenium.webdriver.support.ui import WebDriverWait

_CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
_DRIVER = shutil.which("chromedriver")
_FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --hide-scrollbars --force-color-profile=srgb"
)
MARKS = [
    pytest.mark.browser,
    pytest.mark.skipif(not (_CHROMIUM and _DRIVER), reason="chromium or chromedriver is not installed"),
]
"""Marks of tests that need the browser."""


PHONE = (
    *("Emulation.setDeviceMetricsOverride", "Emulation.clearDeviceMetricsOverride"),
    {"width": 390, "height": 800, "deviceScaleFactor": 1, "mobile": True},
)
"""The settings of a phone's screen."""


def start(profile: Path) -> Any:
    """A browser with a profile of its own, which records what its pages complain about."""
    options = webdriver.ChromeOptions()
    for flag in (*_FLAGS.split(), f"--user-data-dir={profile}"):
        options.add_argument(flag)
    options.binary_location = _CHROMIUM
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    return webdriver.Chrome(options=options, service=Service(_DRIVER))


def complaints(browser) -> list[dict[str, Any]]:
    """Warnings and errors since the last call."""
    return [line for line in browser.get_log("browser") if line["level"] in ("SEVERE", "WARNING")]


def find(browser, css: str):
    return browser.find_element(By.CSS_SELECTOR, css)


def find_all(browser, css: str) -> list:
    return browser.find_elements(By.CSS_SELECTOR, css)


def texts(browser, css: str) -> list[str]:
    return [element.text for element in find_all(browser, css)]


def press(browser, keys: str) -> None:
    find(browser, "body").send_keys(keys)


def wait(browser, until: Callable[..., object], *arguments: object) -> None:
    WebDriverWait(browser, 20, 0.05, [WebDriverException]).until(lambda _: until(*arguments))


def wait_for_row(browser, row: int) -> None:
    """Wait until the page of a row is there."""
    wait(browser, lambda: find(browser, "body").get_attribute("data-row") == str(row))
    wait(browser, lambda: browser.execute_script("return document.readyState") == "complete")


def style(browser, css: str, name: str, pseudo: str = "") -> str:
    """A computed style of the first element that ``css`` finds."""
    asked = "return getComputedStyle(document.querySelector(arguments[0]), arguments[1] || null)[arguments[2]]"
    return browser.execute_script(asked, css, pseudo, name)


def fits_the_width(browser) -> bool:
    """True if nothing is wider than the window."""
    return browser.execute_script("return document.documentElement.scrollWidth <= window.innerWidth")


def take_picture(browser, name: str, width: int, height: int) -> None:
    """Keep a picture, if pictures are wanted."""
    if folder := os.environ.get("FARSPAN_SCREENSHOTS"):
        browser.set_window_size(width, height + 143)  # of which the head of a window takes this
        Path(folder).mkdir(parents=True, exist_ok=True)
        taken = browser.execute_cdp_cmd("Page.captureScreenshot", {"format": "webp", "quality": 85})
        Path(folder, f"{name}.webp").write_bytes(b64decode(taken["data"]))


@contextmanager
def emulated(browser, on: str, off: str, given: dict[str, Any]) -> Iterator[None]:
    """The browser with a setting of its developer tools, e.g. a phone's screen."""
    browser.execute_cdp_cmd(on, given)
    try:
        yield
    finally:
        browser.execute_cdp_cmd(off, {})
