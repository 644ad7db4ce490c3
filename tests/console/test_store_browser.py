"""A store directory in a real browser: a verify with its findings, and the map with the keyboard, at two widths."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from test_store_pages import browsing

import runbook_stores

pytest.importorskip("selenium")
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webdriver import WebDriver

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("chromedriver") is None, reason="needs Chromium and its driver"),
]


@pytest.fixture(scope="module")
def browser() -> Iterator[WebDriver]:
    options = webdriver.ChromeOptions()
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    driver = webdriver.Chrome(options, webdriver.ChromeService(shutil.which("chromedriver")))
    yield driver
    driver.quit()


def await_true(is_true: Callable[[], object], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not is_true():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def set_width(browser: WebDriver, width: int) -> None:
    metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)


@pytest.mark.parametrize("width", [1300, 400])
def test_verify_runs_in_page_and_map_is_used_by_keyboard(browser: webdriver.Chrome, tmp_path: Path, width: int) -> None:
    store = tmp_path / "store"
    runbook_stores.make(store)
    runbook_stores.flip_body(store)
    set_width(browser, width)
    with browsing(store) as client:
        base = str(client.base_url).rstrip("/")
        browser.get(f"{base}/verify")
        browser.find_element(By.XPATH, "//button[text()='Verify']").click()
        # The page shows the end by itself: nothing reloads it.
        await_true(lambda: "1 finding" in browser.find_element(By.TAG_NAME, "main").text)
        assert "gantrymq store salvage" in browser.find_element(By.TAG_NAME, "main").text
        assert not browser.find_elements(By.CSS_SELECTOR, "progress")

        browser.get(f"{base}/map")
        strips = browser.find_elements(By.CSS_SELECTOR, ".cells")
        stops = browser.find_elements(By.CSS_SELECTOR, ".cells .cell[tabindex='0']")
        assert len(stops) == len(strips)  # one Tab stop for each strip
        browser.execute_script("arguments[0].focus()", stops[0])
        keys = browser.switch_to.active_element
        keys.send_keys(Keys.ARROW_RIGHT)
        label = browser.switch_to.active_element.get_attribute("aria-label")
        assert label is not None
        assert "00000000000000065536, damaged" in label
        assert "record-crc" in browser.find_element(By.ID, "detail").text
        browser.switch_to.active_element.send_keys(Keys.END)
        assert "live" in browser.find_element(By.ID, "detail").text
        browser.switch_to.active_element.send_keys(Keys.HOME, Keys.ARROW_RIGHT)
        browser.switch_to.active_element.send_keys(Keys.ENTER)
        await_true(lambda: "/map/file" in browser.current_url)
        assert "record-crc" in browser.find_element(By.TAG_NAME, "main").text
        for page in ("/", "/topics", "/groups", "/messages", "/dlq", "/pending", "/map", "/verify"):
            browser.get(f"{base}{page}")
            assert browser.execute_script("return document.documentElement.scrollWidth") <= width, page
        severe = [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"]
        assert severe == []
