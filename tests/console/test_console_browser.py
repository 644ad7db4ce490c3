"""The console in a real browser: clicks, keyboard, dark mode, widths, and that nothing leaves the console."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from demo_cluster import DemoCluster
from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from gantrymq import EmbeddedBroker, Message, Producer

pytestmark = pytest.mark.slow

PAGES = (
    *(
        "/",
        "/brokers",
        "/brokers/broker-a",
        "/topics",
        "/topics?kind=all",
        "/topics/orders",
        "/delete-topic?topic=orders",
    ),
    *(
        "/groups",
        "/groups/invoices",
        "/reset?group=billing&topic=orders&to=earliest",
        "/clients",
        "/dlq",
        "/dlq/mailer",
    ),
    *(
        "/messages",
        "/messages?by=id",
        "/messages?by=offset",
        "/messages?by=topic&topic=bodies",
        "/message?topic=bodies&broker=broker-a&queue=0&offset=4",
    ),
    *("/message?topic=bodies&broker=broker-a&queue=0&offset=3", "/trace?id=x", "/pending", "/nowhere"),
    *("/resend?group=mailer&letter=broker-a/0/0", "/send?topic=orders", "/delete-group?group=billing"),
    *("/broker-setting?broker=broker-a&key=fileReservedTime", "/broker-tasks?broker=broker-a"),
)
WAIT_S = 30


@pytest.fixture(scope="module")
def browser() -> Iterator[webdriver.Chrome]:
    programs = [shutil.which(one) for one in ("chromium", "chromedriver")]
    if not all(programs):
        reason = "no chromium with chromedriver"
        (pytest.fail if os.environ.get("GANTRYMQ_REQUIRE_INTEROP") == "1" else pytest.skip)(reason)
    options = Options()
    options.binary_location = str(programs[0])
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    for one in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(one)
    driver = webdriver.Chrome(options=options, service=Service(str(programs[1])))
    try:
        yield driver
    finally:
        driver.quit()


@pytest.fixture
def at(browser: webdriver.Chrome, changing_url: str) -> Callable[[str], webdriver.Chrome]:
    """Opens a page of the console that may change the cluster, 1300 pixels wide."""
    width(browser, 1300)

    def opened(path: str) -> webdriver.Chrome:
        browser.get(changing_url.rstrip("/") + path)
        return browser

    return opened


def width(browser: webdriver.Chrome, pixels: int) -> None:
    size = {"width": pixels, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)


def scheme(browser: webdriver.Chrome, name: str) -> None:
    media = {"features": [{"name": "prefers-color-scheme", "value": name}]}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", media)


def until(condition: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + WAIT_S
    while not (found := condition()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return found


def text(browser: webdriver.Chrome) -> str:
    return str(browser.find_element(By.TAG_NAME, "main").text)


def press(browser: webdriver.Chrome, label: str) -> None:
    """Press the button with a label, and wait for the next page."""
    pages = browser.find_elements(By.TAG_NAME, "main")
    browser.find_element(By.XPATH, f"//main//button[contains(., '{label}')]").click()
    until(lambda: browser.find_elements(By.TAG_NAME, "main") not in (pages, []))
    until(lambda: browser.execute_script("return document.readyState") == "complete")


@pytest.mark.parametrize("pixels", [400, 1300])
def test_no_page_is_wider_than_window(at: Callable[[str], webdriver.Chrome], pixels: int) -> None:
    for path in PAGES:
        browser = at(path)
        width(browser, pixels)
        inner, whole = browser.execute_script("return [innerWidth, document.documentElement.scrollWidth]")
        assert inner == pixels
        assert whole <= pixels, path


def test_pages_have_no_error_and_no_request_to_other_host(
    at: Callable[[str], webdriver.Chrome], changing_url: str
) -> None:
    browser = at("/")
    browser.get_log("browser")
    browser.get_log("performance")
    for path in PAGES:
        at(path)
    at("/")
    until(lambda: browser.find_elements(By.CSS_SELECTOR, ".chart canvas"))
    logged = [one["message"] for one in browser.get_log("browser") if "/nowhere" not in one["message"]]
    assert logged == []
    events = [json.loads(one["message"])["message"] for one in browser.get_log("performance")]
    asked = [one["params"]["request"]["url"] for one in events if one["method"] == "Network.requestWillBeSent"]
    assert len(asked) > len(PAGES)
    assert [one for one in asked if not one.startswith((changing_url, "data:"))] == []


def test_colours_follow_colour_scheme_of_browser(at: Callable[[str], webdriver.Chrome]) -> None:
    browser = at("/topics")
    found = []
    for name in ("light", "dark"):
        scheme(browser, name)
        colour = browser.execute_script("return getComputedStyle(document.body).backgroundColor")
        found.append(sum(int(part) for part in colour.strip("rgb()").split(",")))
    scheme(browser, "light")
    assert found[0] > 600
    assert found[1] < 150


def test_content_is_reachable_by_keyboard(at: Callable[[str], webdriver.Chrome]) -> None:
    browser = at("/topics")
    browser.switch_to.active_element.send_keys(Keys.TAB)
    skip = browser.switch_to.active_element
    assert skip.text == "Skip to the content"
    assert skip.value_of_css_property("outline-style") == "solid"
    skip.send_keys(Keys.ENTER)
    assert browser.switch_to.active_element.get_attribute("id") == "main"
    for _ in range(40):
        browser.switch_to.active_element.send_keys(Keys.TAB)
        if browser.switch_to.active_element.text == "orders":
            break
    browser.switch_to.active_element.send_keys(Keys.ENTER)
    until(lambda: "Queues" in text(browser) and "orders" in browser.title)


def test_overview_updates_without_reload(
    at: Callable[[str], webdriver.Chrome], broker: EmbeddedBroker, demo: DemoCluster
) -> None:
    browser = at("/")
    before = until(lambda: browser.find_element(By.CSS_SELECTOR, ".live-line").text)
    with Producer(broker.namesrv) as producer:
        for _ in range(30):
            producer.send(Message("orders", b"live", tags="new"))
    until(lambda: browser.execute_script("return document.querySelector('.live-line').textContent.trim()") != before)
    assert browser.find_elements(By.CSS_SELECTOR, ".chart canvas")


def test_open_page_reports_stopped_cluster(browser: webdriver.Chrome) -> None:
    def notice() -> str:
        return browser.find_element(By.ID, "not-live").text

    with EmbeddedBroker(console=True) as broker:
        browser.get(broker.console)
        broker.kill()
        until(lambda: "The cluster does not answer: no name server answers" in notice())
        assert "All brokers answer." in text(browser), "the last values stay"
        broker.restart()
        until(lambda: not notice())
    until(lambda: "The console does not answer" in notice())


def test_message_search_shows_message(at: Callable[[str], webdriver.Chrome], demo: DemoCluster) -> None:
    browser = at("/messages?by=key")
    browser.find_element(By.NAME, "topic").send_keys("orders")
    browser.find_element(By.NAME, "key").send_keys("order-4711")
    press(browser, "Search")
    browser.find_element(By.PARTIAL_LINK_TEXT, demo.ids["order"]).click()
    until(lambda: '"city": "München"' in text(browser))
    browser.find_element(By.LINK_TEXT, "Hex").click()
    until(lambda: "00000000  7b 22" in text(browser))
    browser.find_element(By.LINK_TEXT, "Trace and consumers").click()
    until(lambda: "What clients recorded" in text(browser))


def test_script_in_body_does_not_run(at: Callable[[str], webdriver.Chrome]) -> None:
    browser = at("/message?topic=bodies&broker=broker-a&queue=0&offset=0")
    assert "<script>alert(1)</script>" in text(browser)
    assert not browser.find_elements(By.CSS_SELECTOR, "main script, main img")


def test_offset_reset_of_group_needs_confirmation(
    at: Callable[[str], webdriver.Chrome], broker: EmbeddedBroker, demo: DemoCluster
) -> None:
    browser = at("/groups/billing")
    before = broker.consumer_offsets("billing", "orders")
    browser.find_element(By.CSS_SELECTOR, "select[name=to] option[value=latest]").click()
    press(browser, "Preview")
    assert "What would change" in text(browser)
    assert broker.consumer_offsets("billing", "orders") == before
    press(browser, "Reset the offsets")
    assert "billing was reset in 4 of 4 queues of orders." in text(browser)
    assert broker.consumer_offsets("billing", "orders") != before


def test_dead_letter_can_be_resent(at: Callable[[str], webdriver.Chrome], demo: DemoCluster) -> None:
    browser = at("/dlq/mailer")
    browser.find_element(By.CSS_SELECTOR, "input[data-all]").click()
    boxes = browser.find_elements(By.CSS_SELECTOR, "input[name=letter]")
    assert boxes
    assert all(one.is_selected() for one in boxes)
    press(browser, "Resend the chosen ones")
    browser.find_element(By.CSS_SELECTOR, "input[value=topic]").click()
    press(browser, "Resend")
    assert "dead letters were resent." in text(browser)


def test_topic_can_be_created_and_deleted(at: Callable[[str], webdriver.Chrome], demo: DemoCluster) -> None:
    browser = at("/topics")
    browser.find_element(By.CSS_SELECTOR, "form[method=post] input[name=topic]").send_keys("clicked")
    press(browser, "Create")
    assert "clicked was created at broker-a." in text(browser)
    browser.find_element(By.PARTIAL_LINK_TEXT, "Delete").click()
    until(lambda: "Delete clicked?" in text(browser))
    browser.find_element(By.NAME, "again").send_keys("clicked")
    press(browser, "Delete the topic")
    assert "clicked was deleted." in text(browser)


def test_table_row_on_phone_is_block_with_labels(at: Callable[[str], webdriver.Chrome], demo: DemoCluster) -> None:
    browser = at("/groups/billing")
    width(browser, 400)
    row = browser.find_element(By.CSS_SELECTOR, ".scroll tbody tr")
    assert row.rect["width"] <= 400
    cells = row.find_elements(By.TAG_NAME, "td")
    assert all(one.rect["x"] + one.rect["width"] <= 400 for one in cells)
    labels = [one.get_attribute("data-label") for one in cells]
    assert labels[:5] == ["Broker", "Queue", "End", "Committed", "Behind"]
    shown = browser.execute_script("return getComputedStyle(arguments[0], '::before').content", cells[4])
    assert "Behind" in shown


def test_sent_message_is_shown_on_its_page(at: Callable[[str], webdriver.Chrome], demo: DemoCluster) -> None:
    browser = at("/topics/audit-log")
    browser.find_element(By.PARTIAL_LINK_TEXT, "Send a message").click()
    until(lambda: "to audit-log" in text(browser))
    browser.find_element(By.NAME, "body").send_keys("first\nsecond <b>")
    browser.find_element(By.NAME, "keys").send_keys("by-hand")
    press(browser, "Send")
    assert "is stored in queue 0" in text(browser)
    browser.find_element(By.LINK_TEXT, "Look at the message").click()
    until(lambda: "first\nsecond <b>" in text(browser))


def test_times_are_shown_in_zone_of_browser(at: Callable[[str], webdriver.Chrome], demo: DemoCluster) -> None:
    browser = at("/pending")
    browser.execute_cdp_cmd("Emulation.setTimezoneOverride", {"timezoneId": "Australia/Adelaide"})
    for _ in range(2):  # the first page by its script, the second one by the server
        at("/topics/orders")
        one = browser.find_element(By.CSS_SELECTOR, "main td time")
        shown, utc = one.text, str(one.get_attribute("title"))
        minutes = [int(part[11:13]) * 60 + int(part[14:16]) for part in (shown, utc)]
        assert (minutes[0] - minutes[1]) % 1440 == 630
        assert utc.endswith(" UTC")
    assert "Australia/Adelaide" in browser.find_element(By.CSS_SELECTOR, ".foot").text
    browser.execute_cdp_cmd("Emulation.setTimezoneOverride", {"timezoneId": "UTC"})
