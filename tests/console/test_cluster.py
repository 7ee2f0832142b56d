"""The page Cluster of the console, with two nodes on a real Kafka."""

import json
import os
import secrets
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from tests.console.conftest import Console, until
from tests.support.kafka_node import TOPIC, Node
from tools.kafka import KafkaBroker

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
expect = playwright.expect

pytestmark = [pytest.mark.browser, pytest.mark.kafka]

LOG = f"console-{secrets.token_hex(4)}"
SCREENSHOTS = os.environ.get("PENSTOCK_SCREENSHOTS")


def cluster(node: Node) -> dict[str, Any]:
    with urllib.request.urlopen(f"http://{node.http}/api/cluster") as answer:
        found: dict[str, Any] = json.load(answer)
    return found


def follows(node: Node, number: int) -> dict[int, tuple[int, int]]:
    """Return what a node follows, by partition: the next offset, and messages behind."""
    found = next(each for each in cluster(node)["nodes"] if each["node"] == number)
    return {each["partition"]: (each["offset"], each["behind"]) for each in found["follows"]}


def test_nodes_and_how_far_they_follow_each_other_are_shown(
    kafka: KafkaBroker, browser: Any, tmp_path: Path
) -> None:
    with (
        Node(kafka.address, tmp_path / "a", topic=LOG, number=0) as first,
        Node(kafka.address, tmp_path / "b", topic=LOG, number=1) as second,
        first.connect() as client,
    ):
        for number in range(7):
            client.publish(TOPIC, b"%d" % number)
        until(lambda: follows(second, 1) == {0: (7, 0)})
        found = cluster(second)
        assert (found["log"], found["node"]) == ("kafka", 1)
        assert [each["end"] for each in found["nodes"]] == [7, 0]
        assert [each["process"] for each in found["nodes"]] == [
            each.process.popen.pid for each in (first, second)
        ]
        until(lambda: follows(second, 0) == {1: (0, 0)})  # the report of the other node
        console = Console(f"http://{second.http}", tmp_path)
        page = browser.new_page(viewport={"width": 1280, "height": 844})
        try:
            page.goto(console.url)
            page.get_by_role("link", name="Cluster").click()
            nodes, followed = page.locator("table").nth(0), page.locator("table").nth(1)
            expect(nodes.get_by_role("row", name="1 (asked)")).to_be_visible()
            expect(nodes.locator("tbody tr")).to_have_count(2)
            expect(followed.locator("tbody tr").first).to_have_text("0100")
            expect(followed.locator("tbody tr").last).to_have_text("1070")
            expect(page.get_by_text("this console asks node 1.", exact=False)).to_be_visible()
            assert "Without a report" not in page.content()
            if SCREENSHOTS:
                page.screenshot(path=Path(SCREENSHOTS) / "cluster-light-1280.png")
        finally:
            page.close()
            assert console.stop() == 0, console.output
