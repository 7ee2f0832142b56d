"""The console in a browser: what people do with it, in both themes and at two widths."""

import base64
import itertools
import json
import math
import os
import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

import penstock
from penstock.middleware import TopicIs
from tests.console.conftest import PASSWORD, TOKEN, Console
from tests.support import lamamq_bytes
from tests.support.http_live import JSON, HttpBroker

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
expect = playwright.expect

pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("console")]

OPERATOR = {**JSON, "Authorization": f"Bearer {TOKEN}"}
PAGES = (
    "/", "/topics", "/messages", "/clients", "/groups", "/hooks", "/refusals", "/storage",
    "/pipeline", "/sql",
)  # fmt: skip
CHARTED = ("/", "/groups", "/sql")
BUSY_SECONDS = 90.0
DARK = "rgb(17, 22, 28)"
SCREENSHOTS = os.environ.get("PENSTOCK_SCREENSHOTS")
expect.set_options(timeout=60_000)


class Visitor:
    """A page of the browser, with everything that it complained about or asked other hosts for."""

    def __init__(
        self, browser: Any, url: str, *, width: int = 1280, theme: str = "light", system: str = ""
    ) -> None:
        """`theme` is the one that was chosen, empty for none; `system` that of the system."""
        self.url = url
        self.faults: list[str] = []
        viewport = {"width": width, "height": 844}
        self._context = browser.new_context(viewport=viewport, color_scheme=system or "light")
        if theme:
            self._context.add_cookies([{"name": "theme", "value": theme, "url": url}])
        self._context.set_default_timeout(60_000)
        self.page = self._context.new_page()
        self.page.on("console", self._said)
        self.page.on("pageerror", lambda error: self.faults.append(str(error)))
        self.page.on("request", self._asked)

    def _said(self, message: Any) -> None:
        # A refused log-in has the status 401, an unknown page 404, which browsers print.
        if message.type == "error" and not re.search("401|404", message.text):
            self.faults.append(message.text)

    def _asked(self, request: Any) -> None:
        if not request.url.startswith((self.url, self.url.replace("http", "ws"), "data:")):
            self.faults.append(f"asked {request.url}")

    def open(self, path: str) -> Any:
        self.page.goto(self.url + path)
        expect(self.page.get_by_role("heading", level=1)).to_be_visible()
        return self.page

    def log_in(self, *, token: str = "", password: str = "") -> Any:
        self.page.goto(self.url + "/login")
        if token:
            self.page.get_by_label("Token or API key").fill(token)
        else:
            self.page.get_by_label("User name").fill("reader")
            self.page.get_by_label("Password").fill(password)
        self.page.get_by_role("button", name="Log in").click()
        return self.page

    def close(self) -> None:
        self._context.close()


@pytest.fixture(scope="module")
def traffic(broker: HttpBroker) -> HttpBroker:
    """The broker, with some messages, a client and a group."""
    for number in range(30):
        publish(broker, f"plant/line{number % 3}/temp", json={"celsius": 20 + number})
    publish(broker, "plant/label", base64="3wAAAAGhYQE=")
    broker.server.storage.groups.commit("dashboard", {0: 3})
    if SCREENSHOTS:
        threading.Thread(target=keep_busy, args=(broker,), daemon=True).start()
        time.sleep(BUSY_SECONDS)
    return broker


def keep_busy(broker: HttpBroker) -> None:
    """Publish by several protocols as long as the tests run, for pictures that show something."""
    host, port = broker.address
    url = f"tcp://{host}:{port}"
    with (
        penstock.connect_sync(url, protocol="lamamq", name="press-1") as press,
        penstock.connect_sync(url, protocol="fleximq", name="panel") as panel,
        penstock.connect_sync(url, protocol="herald", name="alarms") as alarms,
        penstock.connect_sync(url, protocol="lamamq", name="dashboard") as dashboard,
        dashboard.subscribe("plant/#", timeout=30) as received,
        penstock.connect_sync(url, protocol="lamamq", name="inspector") as inspector,
    ):
        topics = (TopicIs("checked"),)
        inspector.middleware("inspect", lambda _: None, timeout_ms=30_000, conditions=topics)
        refuse_some(broker)
        for number in itertools.count():
            wave = 20 + int(15 * math.sin(number / 40))
            reading = json.dumps({"celsius": round(20 + wave / 10, 1), "run": number}).encode()
            press.publish_many(f"plant/line{number % 4}/temp", [reading] * wave)
            panel.publish_many("plant/orders", [reading] * (wave // 3 + 1))
            alarms.publish_many("channel/7", [b"21.5"] * 5)
            if number % 20 == 0:
                publish(broker, "checked", text="once")
            while received.get(5).topic != "plant/orders":
                pass
            if number % 60 == 0:
                end = broker.server.storage.status().end
                broker.server.storage.groups.commit("dashboard", {0: max(end - 900, 0)})
                broker.server.storage.groups.commit("warehouse", {0: max(end - 250, 0)})
            time.sleep(0.1)


def refuse_some(broker: HttpBroker) -> None:
    """Let the broker refuse a log-in and an act."""
    assert broker.ask("GET", "/api/log", headers={"Authorization": "Bearer x"}).status == 401
    basic = base64.b64encode(f"reader:{PASSWORD}".encode()).decode()
    asked = broker.ask(
        "GET", "/api/messages?topic=payroll/salaries", headers={"Authorization": f"Basic {basic}"}
    )
    assert asked.status == 403


def publish(broker: HttpBroker, topic: str, **value: Any) -> int:
    body = json.dumps({"topic": topic, **value}).encode()
    answer = broker.ask("POST", "/api/publish", body=body, headers=OPERATOR)
    assert answer.status == 200, answer
    offset: int = answer.json()["offset"]
    return offset


def listed_groups(broker: HttpBroker) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = broker.ask("GET", "/api/groups", headers=OPERATOR).json()[
        "groups"
    ]
    return found


@pytest.fixture(scope="module")
def operator(browser: Any, console: Console, traffic: HttpBroker) -> Iterator[Visitor]:
    visitor = Visitor(browser, console.url)
    visitor.log_in(token=TOKEN)
    expect(visitor.page.get_by_role("heading", level=1)).to_have_text("Overview")
    yield visitor
    assert visitor.faults == []
    visitor.close()


@pytest.fixture(scope="module")
def reader(browser: Any, console: Console, traffic: HttpBroker) -> Iterator[Visitor]:
    visitor = Visitor(browser, console.url)
    visitor.log_in(password=PASSWORD)
    expect(visitor.page.get_by_role("heading", level=1)).to_have_text("Topics")
    yield visitor
    assert visitor.faults == []
    visitor.close()


# --- The shell ------------------------------------------------------------------------------------


def test_without_credentials_there_is_a_log_in_and_wrong_ones_are_refused(
    browser: Any, console: Console
) -> None:
    visitor = Visitor(browser, console.url)
    visitor.page.goto(console.url + "/")
    expect(visitor.page).to_have_url(console.url + "/login")
    visitor.log_in(password="wrong")
    expect(visitor.page.get_by_role("alert")).to_have_text("These credentials are not valid.")
    expect(visitor.page.get_by_label("User name")).to_have_value("reader")
    expect(visitor.page.get_by_label("Password")).to_have_value("")
    expect(visitor.page.get_by_label("Password")).to_be_focused()
    assert visitor.faults == []
    visitor.close()


def test_a_log_in_leads_back_to_the_page_that_was_asked_for(browser: Any, console: Console) -> None:
    visitor = Visitor(browser, console.url)
    page = visitor.page
    page.goto(console.url + "/messages?topic=plant/label")
    for password in ("wrong", PASSWORD):
        page.get_by_label("User name").fill("reader")
        page.get_by_label("Password").fill(password)
        page.get_by_role("button", name="Log in").click()
    expect(page.get_by_label("Topic or pattern")).to_have_value("plant/label")
    page.get_by_role("link", name="Log out").click()
    page.goto(console.url + "/login?to=//evil.example/topics")
    page.get_by_label("User name").fill("reader")
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Log in").click()
    expect(page).to_have_url(console.url + "/topics")  # the first page of this principal
    assert visitor.faults == []
    visitor.close()


def test_the_theme_is_that_of_the_system_until_one_is_chosen(
    browser: Any, console: Console
) -> None:
    visitor = Visitor(browser, console.url, theme="", system="dark")
    page = visitor.page
    page.goto(console.url + "/login")
    shown = "getComputedStyle(document.body).backgroundColor"
    assert page.evaluate(shown) == DARK
    visitor.log_in(password=PASSWORD)
    expect(page.locator("body.body--dark")).to_be_visible()
    page.keyboard.press("t")
    expect(page.locator("body.body--light")).to_be_visible()
    visitor.open("/messages")
    expect(page.locator("body.body--light")).to_be_visible()
    page.goto(console.url + "/login")
    assert page.evaluate(shown) != DARK
    assert visitor.faults == []
    visitor.close()


def test_an_unknown_address_has_a_page_with_a_way_back(operator: Visitor) -> None:
    answer = operator.page.goto(operator.url + "/nothing/here")
    assert answer.status == 404
    expect(operator.page.get_by_role("heading", level=1)).to_have_text("Not found")
    operator.page.get_by_role("link", name="First page").click()
    expect(operator.page.get_by_role("heading", level=1)).to_have_text("Overview")


def test_keys_typed_right_after_the_slash_are_not_lost(operator: Visitor) -> None:
    page = operator.open("/topics")
    expect(page.get_by_role("link", name="plant/label")).to_be_visible()
    page.keyboard.type("/ine1")
    expect(page.get_by_label("Search topics")).to_have_value("ine1")
    expect(page.get_by_role("row", name="plant/line1/temp")).to_be_visible()


def test_the_menu_stays_where_it_is_from_page_to_page(operator: Visitor) -> None:
    places = "[...document.querySelectorAll('.place')].map((each) => each.offsetLeft)"
    page = operator.page
    try:
        for width in (1280, 390):
            page.set_viewport_size({"width": width, "height": 844})
            seen = [operator.open(path).evaluate(places) for path in ("/", "/refusals", "/sql")]
            assert seen[0] == seen[1] == seen[2], width
    finally:
        page.set_viewport_size({"width": 1280, "height": 844})


def test_a_page_has_a_policy_that_allows_its_own_scripts_only(operator: Visitor) -> None:
    answer = operator.page.request.get(operator.url + "/topics")
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe-inline" not in policy.split("style-src")[0]
    assert not re.search(r"https?:|\*", policy)
    nonce = re.search(r"'nonce-([^']+)'", policy)
    assert nonce is not None
    scripts = re.findall(r"<script[^>]*>", answer.text())
    assert scripts
    assert all(f'nonce="{nonce[1]}"' in script for script in scripts)


@pytest.mark.parametrize("headers", [{"Origin": "http://evil.example"}, {"Host": "evil.example"}])
def test_a_request_that_another_site_causes_is_refused(
    console: Console, headers: dict[str, str]
) -> None:
    import httpx  # noqa: PLC0415  (of the extra)

    for path in ("/", "/login", "/_nicegui_ws/socket.io/?EIO=4&transport=polling"):
        assert httpx.get(console.url + path, headers=headers).status_code == 403


def test_shortcuts_lead_to_pages_and_change_the_theme(operator: Visitor) -> None:
    page = operator.open("/")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_contain_text("Light or dark")
    shown = page.locator(".keys dd").all_inner_texts()
    menu = page.get_by_role("navigation", name="Pages").get_by_role("link").all_inner_texts()
    assert shown[: len(menu)] == menu
    expect(page.get_by_role("dialog")).to_contain_text("Ctrl+Enter")
    page.get_by_role("dialog").get_by_role("button", name="Close").click()
    expect(page.get_by_role("dialog")).to_be_hidden()
    page.keyboard.press("t")
    expect(page.locator("body.body--dark")).to_be_visible()
    page.keyboard.press("7")
    expect(page.get_by_role("heading", level=1)).to_have_text("Storage")
    expect(page.locator("body.body--dark")).to_be_visible()
    page.keyboard.press("t")
    expect(page.locator("body.body--light")).to_be_visible()


def test_a_reader_sees_only_what_it_may(reader: Visitor) -> None:
    page = reader.open("/topics")
    places = page.get_by_role("navigation", name="Pages").get_by_role("link").all_inner_texts()
    assert places == ["Topics", "Messages", "Groups", "SQL"]
    expect(page.get_by_role("link", name="plant/label")).to_be_visible()
    reader.open("/")
    expect(page.get_by_role("heading", level=1)).to_have_text("Topics")
    reader.open("/messages")
    expect(page.get_by_label("Topic or pattern")).to_have_value("plant/#")
    expect(page.locator("tbody tr").first).to_be_visible()
    reader.open("/sql")
    page.get_by_role("button", name="Run").click()
    expect(page.get_by_text(re.compile("rows in"))).to_be_visible()
    reader.open("/messages?topic=plant/label")
    expect(page.get_by_role("cell", name='{"a": 1}')).to_be_visible()
    expect(page.get_by_role("button", name="Publish")).to_be_hidden()
    reader.open("/clients")
    expect(page.get_by_role("alert")).to_contain_text("administer clients")
    reader.open("/groups")
    expect(page.get_by_role("alert")).to_contain_text("reader may see no group")
    reader.open("/messages?topic=secret/x")
    expect(page.get_by_role("alert")).to_contain_text("may not subscribe")
    expect(page.get_by_text("No messages.")).to_be_hidden()


def test_a_log_out_ends_the_log_in(browser: Any, console: Console) -> None:
    visitor = Visitor(browser, console.url)
    page = visitor.log_in(password=PASSWORD)
    page.get_by_role("link", name="Log out").click()
    expect(page).to_have_url(console.url + "/login")
    page.goto(console.url + "/topics")
    expect(page).to_have_url(console.url + "/login?to=%2Ftopics")
    visitor.close()


# --- Pages ----------------------------------------------------------------------------------------


def test_the_overview_shows_live_traffic_and_what_is_wrong(
    operator: Visitor, traffic: HttpBroker
) -> None:
    page = operator.open("/")
    offset = publish(traffic, "plant/overview", text="x")
    expect(page.get_by_text(f"{offset + 1:,} messages")).to_be_visible()
    assert page.locator("canvas").count() == 4
    refused = traffic.ask("GET", "/api/log", headers={"Authorization": "Bearer wrong"})
    assert refused.status == 401
    expect(page.get_by_text("was refused. The log-in failed")).to_be_visible()


def test_topics_are_found_by_level_and_by_search(operator: Visitor) -> None:
    page = operator.open("/topics")
    page.get_by_role("link", name="plant/", exact=True).click()
    page.get_by_role("link", name="line0/", exact=True).click()
    page.get_by_role("link", name="temp", exact=True).click()
    expect(page.get_by_label("Topic or pattern")).to_have_value("plant/line0/temp")
    operator.open("/topics")
    page.get_by_label("Search topics").fill("ine1")
    expect(page.get_by_role("link", name="plant/line0/temp")).to_be_hidden()
    row = page.get_by_role("row", name="plant/line1/temp")
    expect(row).to_contain_text('{"celsius": 48}')
    expect(page.get_by_text("1 topic", exact=True)).to_be_visible()
    expect(page.get_by_text("Levels", exact=True)).to_be_hidden()


def test_topics_are_in_the_order_of_their_names_and_counted(operator: Visitor) -> None:
    page = operator.open("/topics?prefix=plant/line")
    rows = page.locator("section").last.locator("tbody tr td:first-child")
    expect(rows.first).to_have_text("plant/line0/temp")
    names = rows.all_inner_texts()
    assert names == sorted(names)
    expect(page.get_by_text(f"{len(names)} topics", exact=True)).to_be_visible()


@pytest.mark.parametrize(
    "path", ["/topics?prefix=plant/narrow/", "/messages?topic=plant/narrow/%23"]
)
def test_names_of_topics_are_whole_on_a_narrow_screen(
    operator: Visitor, traffic: HttpBroker, path: str
) -> None:
    for number in range(3):
        publish(traffic, f"plant/narrow/line-0{number}/temperature", text="x" * 50)
    page = operator.page
    page.set_viewport_size({"width": 390, "height": 844})
    try:
        operator.open(path)
        link = page.get_by_role("link", name="plant/narrow/line-02/temperature").first
        expect(link).to_be_visible()
        cell = link.locator("xpath=..")
        assert cell.evaluate("(each) => each.scrollWidth <= each.clientWidth")
        page.wait_for_function(FITS)
    finally:
        page.set_viewport_size({"width": 1280, "height": 844})


def test_a_bad_time_is_an_error_and_a_time_alone_is_one_of_today(
    operator: Visitor, traffic: HttpBroker
) -> None:
    publish(traffic, "plant/today", text="now")
    page = operator.open("/messages?topic=plant/%23")
    page.get_by_label("Offset or time").fill("yesterday")
    page.get_by_role("button", name="Go").click()
    expect(page.get_by_role("alert")).to_contain_text("That is no offset, and no time")
    page.get_by_label("Offset or time").fill("00:00")
    page.get_by_role("button", name="Go").click()
    expect(page.get_by_role("alert")).to_be_hidden()
    page.get_by_role("button", name="Latest").click()
    page.get_by_role("link", name="plant/today").first.click()
    expect(page.get_by_label("Topic or pattern")).to_have_value("plant/today")


def test_a_message_names_the_principal_of_a_connected_sender(
    operator: Visitor, traffic: HttpBroker
) -> None:
    url = "tcp://{}:{}".format(*traffic.address)
    with penstock.connect_sync(url, protocol="lamamq", name="till-7") as client:
        client.publish("plant/sales", b"12 EUR")
        page = operator.open("/messages?topic=plant/sales")
        page.get_by_role("button", name=re.compile("^Open ")).first.click()
        dialog = page.get_by_role("dialog")
        expect(dialog).to_contain_text("till-7, over lamamq, principal")
        dialog.get_by_role("link", name="Sender among the clients").click()
        expect(page.get_by_label("Search clients")).to_have_value("till-7")
        expect(page.get_by_role("row", name="till-7")).to_be_visible()
        page.get_by_label("Search clients").fill("nobody")
        expect(page.get_by_text("No such client is connected.")).to_be_visible()


def test_messages_come_live_stop_and_are_found_back_in_time(
    operator: Visitor, traffic: HttpBroker
) -> None:
    page = operator.open("/messages?topic=plant/live")
    expect(page.get_by_text("No messages.")).to_be_visible()
    first = publish(traffic, "plant/live", text="one")
    expect(page.get_by_role("cell", name="one", exact=True)).to_be_visible()
    page.get_by_role("switch", name="Live").click()
    publish(traffic, "plant/live", text="two")
    page.get_by_label("Offset or time").fill(str(first))
    page.get_by_role("button", name="Go").click()
    expect(page.get_by_role("cell", name="two", exact=True)).to_be_visible()
    page.get_by_label("Filter").fill("tw")
    expect(page.get_by_role("cell", name="one", exact=True)).to_be_hidden()


def test_a_message_is_explained_and_published_again(operator: Visitor, traffic: HttpBroker) -> None:
    publish(traffic, "plant/again", json={"celsius": 21})
    page = operator.open("/messages?topic=plant/again")
    page.get_by_role("button", name=re.compile("^Open ")).first.click()
    dialog = page.get_by_role("dialog").first
    expect(dialog).to_contain_text('"celsius": 21')
    dialog.get_by_role("tab", name="Hex").click()
    expect(dialog).to_contain_text("7b 22 63 65 6c")
    dialog.get_by_text("As a frame of each protocol").click()
    for protocol, field in (
        ("rheos1", "Topic name"),
        ("rheos2", "CRC32"),
        ("fleximq", "ClientID"),
        ("herald", "Channel"),
        ("lamamq", "routing key"),
    ):
        dialog.get_by_role("tab", name=protocol).click()
        expect(dialog.get_by_role("cell", name=field, exact=True)).to_be_visible()
    dialog.get_by_role("button", name="Publish again").click()
    page.get_by_label("Payload", exact=True).fill('{"celsius": 22}')
    page.get_by_role("button", name="Publish", exact=True).last.click()
    expect(page.get_by_text(re.compile("Published at offset"))).to_be_visible()
    expect(page.get_by_role("cell", name='{"celsius": 22}')).to_be_visible()


def test_text_of_messages_does_not_become_markup(operator: Visitor, traffic: HttpBroker) -> None:
    topic = "plant/<script>window.broken=1</script>"
    publish(traffic, topic, text='<img src=x onerror="window.broken=1"><script>window.broken=1')
    page = operator.open(f"/messages?topic={quote(topic, safe='')}")
    expect(page.get_by_role("cell", name=re.compile("^<img src=x"))).to_be_visible()
    page.get_by_role("button", name=re.compile("^Open ")).click()
    expect(page.get_by_role("dialog")).to_contain_text("<img src=x")
    assert page.evaluate("window.broken") is None
    source = page.request.get(page.url).text()
    assert "<script>window" not in source
    assert source.count("window.broken") > 0


def test_a_client_is_disconnected(operator: Visitor, traffic: HttpBroker) -> None:
    with lamamq_bytes.subscriber(traffic, b"plant/#") as peer:
        page = operator.open("/clients")
        page.get_by_role("button", name=re.compile("^Topics ")).click()
        link = page.get_by_role("dialog").get_by_role("link", name="plant/#")
        expect(link).to_have_attribute("href", "/messages?topic=plant%2F%23")
        page.get_by_role("dialog").get_by_role("button", name="Close").click()
        page.get_by_role("button", name=re.compile("^Disconnect ")).click()
        page.get_by_role("dialog").get_by_role("button", name="Disconnect").click()
        expect(page.get_by_text("No client is connected.")).to_be_visible()
        peer.expect_close()


def test_a_group_is_reset(operator: Visitor, traffic: HttpBroker) -> None:
    page = operator.open("/groups")
    expect(page.get_by_role("row", name="dashboard").first).to_be_visible()
    page.get_by_role("button", name="Reset dashboard").click()
    page.get_by_label("Offset, time, earliest, latest or -15m").fill("7")
    page.get_by_role("dialog").get_by_role("button", name="Reset").click()
    expect(page.get_by_text("dashboard is at offset 7 now.")).to_be_visible()
    assert traffic.server.storage.groups.load("dashboard").offsets == {0: 7}


def test_a_group_has_members_and_its_dead_letters_are_delivered_again(
    operator: Visitor, traffic: HttpBroker
) -> None:
    url = "tcp://{}:{}".format(*traffic.address)
    with (
        penstock.connect_sync(url, protocol="lamamq", name="biller", timeout=60) as client,
        client.consume("plant/bills", group="billing", timeout=60) as messages,
    ):
        publish(traffic, "plant/bills", text="7 EUR")
        messages.get(60).nack("no such account")
        page = operator.open("/groups")
        row = page.get_by_role("row", name="billing").first
        expect(row.get_by_role("cell").nth(4)).to_have_text("1")  # dead letters
        page.get_by_role("button", name="Members billing").click()
        dialog = page.get_by_role("dialog")
        expect(dialog.get_by_role("row", name="biller")).to_be_visible()
        dialog.get_by_role("button", name="Redrive").click()
        question = page.get_by_role("dialog").filter(has_text="Redrive billing?")
        expect(question).to_contain_text("Its dead letter is delivered to its members again")
        question.get_by_role("button", name="Cancel").click()
        expect(question).to_be_hidden()
        (group,) = [each for each in listed_groups(traffic) if each["name"] == "billing"]
        assert group["dead"] == 1
        dialog.get_by_role("button", name="Redrive").click()
        question.get_by_role("button", name="Redrive").click()
        expect(page.get_by_text("1 messages of billing are delivered again.")).to_be_visible()
        assert messages.get(60).value == b"7 EUR"


def test_a_group_that_lags_without_members_is_coloured_at_both_widths(
    operator: Visitor, traffic: HttpBroker
) -> None:
    url = "tcp://{}:{}".format(*traffic.address)
    with (
        penstock.connect_sync(url, protocol="lamamq", name="gone", timeout=60) as client,
        client.consume("plant/idle", group="abandoned", timeout=60),
    ):
        pass
    publish(traffic, "plant/idle", text="1")
    page = operator.open("/groups")
    for width in (1280, 390):
        page.set_viewport_size({"width": width, "height": 844})
        members = page.get_by_role("row", name="abandoned").first.get_by_role("cell").nth(2)
        expect(members).to_be_visible()
        expect(members).to_have_text("0")
        expect(members).to_have_css("color", "rgb(179, 38, 30)")
    page.set_viewport_size({"width": 1280, "height": 844})
    traffic.ask("DELETE", "/api/groups/abandoned", headers=OPERATOR)


def test_a_stranger_finds_a_refusal_a_lag_and_the_last_message_from_the_first_page(
    operator: Visitor, reader: Visitor, traffic: HttpBroker
) -> None:
    reader.open("/messages?topic=secret/why")
    publish(traffic, "plant/seen", text="the last one")
    page = operator.open("/")
    problem = page.locator(".problems .row").filter(has_text="was refused.")
    expect(problem).to_contain_text(
        "The rules of reader do not allow it to subscribe to secret/why"
    )
    problem.get_by_role("link", name="Look").click()
    expect(page.get_by_role("meter", name="connections")).to_be_visible()
    row = page.get_by_role("row", name="secret/why")
    expect(row).to_contain_text("reader")
    row.get_by_role("button", name=re.compile("^Explain")).click()
    expect(page.get_by_role("dialog")).to_contain_text('Add a rule with allow = ["subscribe"]')
    page.get_by_role("dialog").get_by_role("button", name="Close").click()
    page.get_by_role("link", name="Groups", exact=True).click()
    expect(page.get_by_text(re.compile("dashboard lags most: .* messages wait"))).to_be_visible()
    page.get_by_role("link", name="Topics", exact=True).click()
    page.get_by_label("Search topics").fill("seen")
    expect(page.get_by_role("row", name="plant/seen")).to_contain_text("the last one")
    page.get_by_role("link", name="plant/seen").click()
    expect(page.locator("tbody tr").first).to_contain_text("the last one")


def test_tables_are_shown_queried_and_dead_letters_are_replayed(
    operator: Visitor, traffic: HttpBroker
) -> None:
    page = operator.open("/pipeline")
    expect(page.get_by_role("row", name="temps").first).to_contain_text("40")
    page.get_by_role("button", name=re.compile("^Edit and replay")).first.click()
    page.get_by_label("Payload", exact=True).fill('{"celsius": 21.1}')
    page.get_by_role("dialog").get_by_role("button", name="Publish").click()
    expect(page.get_by_text(re.compile("Published at offset"))).to_be_visible()
    answer = traffic.ask("GET", "/api/messages?topic=brewery/kettle/temp", headers=OPERATOR)
    assert [base64.b64decode(each["value"]) for each in answer.json()["messages"]] == [
        b'{"celsius": 21.1}'
    ]
    page.get_by_label("Query").fill("SELECT topic, sum(messages) AS n FROM traffic GROUP BY 1")
    page.get_by_role("button", name="Run").click()
    expect(page.get_by_text(re.compile("3 rows in"))).to_be_visible()
    assert page.locator("canvas").count() == 1
    page.get_by_label("Query").fill("DROP TABLE traffic")
    page.get_by_role("button", name="Run").click()
    expect(page.get_by_text("expected one SELECT")).to_be_visible()


def test_topics_are_queried_with_the_rights_of_the_visitor(
    operator: Visitor, reader: Visitor
) -> None:
    for visitor in (operator, reader):
        page = visitor.open("/sql")
        page.get_by_label("Query").fill(
            "SELECT topic, max((text->>'celsius')::INT) AS hottest FROM \"plant/+/temp\""
            " WHERE text LIKE '{%' GROUP BY topic ORDER BY topic LIMIT 3"
        )
        page.get_by_role("button", name="Run").click()
        expect(page.get_by_text(re.compile("3 rows in"))).to_be_visible()
        expect(page.get_by_role("cell", name="plant/line0/temp")).to_be_visible()
        assert page.locator("canvas").count() == 1
    page.get_by_label("Query").fill('SELECT * FROM "secret/#"')
    page.get_by_role("button", name="Run").click()
    expect(page.get_by_text("may not subscribe")).to_be_visible()
    page.get_by_label("Query").fill("SELECT * FROM traffic")  # a table, for others
    page.get_by_role("button", name="Run").click()
    expect(page.get_by_text("may not subscribe")).to_be_visible()


def test_the_log_is_verified(operator: Visitor) -> None:
    page = operator.open("/storage")
    page.get_by_role("button", name="Verify").click()
    expect(page.get_by_text(re.compile("messages are verified, none is damaged"))).to_be_visible()


def test_a_hook_is_shown_with_its_times(operator: Visitor, traffic: HttpBroker) -> None:
    url = "tcp://{}:{}".format(*traffic.address)
    with penstock.connect_sync(url, protocol="lamamq", name="inspector") as client:
        client.middleware(
            "inspect", lambda _: None, timeout_ms=30_000, conditions=(TopicIs("checked"),)
        )
        publish(traffic, "checked", text="once")
        page = operator.open("/hooks")
        row = page.get_by_role("row", name=re.compile("inspect"))
        expect(row).to_contain_text("push, must consent")
        expect(row).to_contain_text("checked")
        expect(row).to_contain_text(re.compile(r"\d ms"))


def test_the_page_of_topics_says_how_long_messages_are_kept(operator: Visitor) -> None:
    page = operator.open("/topics")
    expect(page.get_by_text("kept for good: neither an age nor a size is set")).to_be_visible()
    expect(page.get_by_role("link", name="Cluster")).to_have_count(0)  # the log is a folder


# --- Look -----------------------------------------------------------------------------------------

PICTURED = 'SELECT topic, count(*) AS messages FROM "plant/#" GROUP BY topic ORDER BY 1'
UNNAMED = """() => [...document.querySelectorAll('button, a, input, textarea, [role=switch]')]
    .filter((each) => each.offsetParent && !(each.innerText.trim() || each.ariaLabel
        || each.labels?.length || each.getAttribute('aria-labelledby')))
    .map((each) => each.outerHTML.slice(0, 200))"""
CUT_TABLES = """() => [...document.querySelectorAll('.q-table__middle')]
    .filter((each) => each.scrollWidth > each.clientWidth)
    .map((each) => each.innerText.slice(0, 200))"""
FITS = "() => document.documentElement.scrollWidth <= window.innerWidth"


@pytest.mark.parametrize("path", PAGES)
def test_a_page_fits_two_widths_in_both_themes_and_every_control_has_a_name(
    operator: Visitor, path: str
) -> None:
    page = operator.open(path)
    for width in (1280, 390):
        page.set_viewport_size({"width": width, "height": 844})
        for theme in ("light", "dark"):
            expect(page.locator(f"body.body--{theme}")).to_be_visible()
            page.wait_for_function(FITS)  # charts take a moment to follow the width
            assert page.evaluate(UNNAMED) == [], (width, theme)
            page.wait_for_function(f"() => !({CUT_TABLES})().length")  # so do tables
            if SCREENSHOTS:
                if path == "/sql" and not page.locator("canvas").count():
                    page.get_by_label("Query").fill(PICTURED)
                    page.get_by_role("button", name="Run").click()
                    expect(page.locator("canvas")).to_be_visible()
                    page.get_by_role("heading", level=1).click()  # shortcuts are for pages
                if path == "/pipeline":
                    expect(page.get_by_role("row", name="temps").first).to_be_visible()
                    replay = page.get_by_role("button", name=re.compile("^Edit and replay"))
                    expect(replay.first).to_be_visible()
                if path in CHARTED:
                    expect(page.locator("canvas").last).to_be_visible()
                name = path.strip("/") or "overview"
                page.wait_for_timeout(2_500)
                page.screenshot(path=Path(SCREENSHOTS) / f"{name}-{theme}-{width}.png")
            page.keyboard.press("t")
            expect(page.locator(f"body.body--{theme}")).to_be_hidden()
            # The next page has the theme of the cookie, which is set after the look has changed.
            page.wait_for_function(f"!document.cookie.includes('theme={theme}')")
    page.set_viewport_size({"width": 1280, "height": 844})
