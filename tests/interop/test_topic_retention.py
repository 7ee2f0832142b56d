"""Retention by topic, as subscribers and consumer groups see it."""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.client import Refused, connect
from penstock.client import subscription as client_subscription
from penstock.ports import GroupProgress, Subscription
from penstock.positions import Anchor
from penstock.storage.group_offsets import GroupOffsets
from penstock.storage.options import LogOptions, Retention, TopicRetention
from tests.support.live import LiveBroker
from tests.support.written_log import WrittenLog, message

SECONDS = 10.0
RULE = TopicRetention(("a/#",), age_seconds_max=3600.0)
KEPT = [("b", b"1"), ("a/1", b"3"), ("b", b"4")]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[LiveBroker]:
    """A broker with five messages; those at 0 and 2 have expired."""
    now_us = time.time_ns() // 1000
    with WrittenLog(tmp_path) as log:
        topics = ("a/1", "b", "a/2")
        old_us = now_us - 7_200_000_000
        log.put(*(message(topic, b"%d" % n, timestamp_us=old_us) for n, topic in enumerate(topics)))
        log.put(*(message(*each, timestamp_us=now_us) for each in KEPT[1:]))
    progress = GroupProgress(next=0)
    subscription = Subscription(patterns=("#",))
    GroupOffsets(tmp_path).commit("old", {0: 0}, subscription=subscription, progress=progress)
    options = LogOptions(retention=Retention(rules=(RULE,)))
    with LiveBroker(data=tmp_path, log_options=options) as live:
        deadline = time.monotonic() + SECONDS
        while not live.call(lambda: live.server.storage.status().retention_rules[0].horizon):
            assert time.monotonic() < deadline
        yield live


def url(broker: LiveBroker) -> str:
    host, port = broker.address
    return f"tcp://{host}:{port}"


@pytest.mark.parametrize("protocol", ["rheos1", "fleximq", "lamamq"])
def test_history_has_no_expired_message(broker: LiveBroker, protocol: str) -> None:
    async def replay(pattern: str, count: int) -> list[bytes]:
        async with (
            connect(url(broker), protocol=protocol) as client,  # type: ignore[arg-type]
            await client.subscribe(pattern) as messages,
        ):
            return [bytes((await messages.get(SECONDS)).value) for _ in range(count)]

    assert asyncio.run(replay("#@earliest", 3)) == [b"1", b"3", b"4"]
    assert asyncio.run(replay("a/#@earliest", 1)) == [b"3"]
    assert asyncio.run(replay("#@last", 2)) == [b"3", b"4"]
    assert broker.call(broker.server.broker.counters.messages_dropped.total) == 0


@pytest.mark.parametrize(
    ("pattern", "horizon"),
    [("a/1", 3), ("a/#", 3), ("+/1", 3), ("#", 3), ("b", 0), ("c/#", 0), ("a", 3)],
)
def test_a_client_is_told_below_which_offset_messages_of_its_pattern_may_be_gone(
    broker: LiveBroker, monkeypatch: pytest.MonkeyPatch, pattern: str, horizon: int
) -> None:
    anchors: list[Anchor] = []
    opened = client_subscription.Subscription.opened

    def opening(self: client_subscription.Subscription, anchor: Anchor) -> str | None:
        anchors.append(anchor)
        return opened(self, anchor)

    monkeypatch.setattr(client_subscription.Subscription, "opened", opening)

    async def subscribe() -> None:
        async with connect(url(broker), protocol="lamamq") as client:
            await client.subscribe(pattern)

    asyncio.run(subscribe())
    assert [each.partitions[0].horizon for each in anchors] == [horizon]


def test_a_start_below_the_horizon_of_the_topic_is_refused(broker: LiveBroker) -> None:
    async def subscribe(text: str) -> None:
        async with connect(url(broker), protocol="fleximq") as client:
            await client.subscribe(text)

    asyncio.run(subscribe("b@#0"))
    asyncio.run(subscribe("a/1@#3"))
    with pytest.raises(Refused, match="offset 2"):
        asyncio.run(subscribe("a/1@#2"))


@pytest.mark.parametrize(("group", "lost"), [("old", 2), ("new", 0)])
def test_a_group_counts_what_expired_before_it_read_it(
    broker: LiveBroker, group: str, lost: int
) -> None:
    async def consume() -> list[tuple[str, bytes]]:
        async with (
            connect(url(broker), protocol="fleximq") as client,
            client.consume("#", group=group, start="earliest") as messages,
        ):
            found = [await messages.get(SECONDS) for _ in range(3)]
            for each in found:
                assert await each.ack()
            return [(each.topic, bytes(each.value)) for each in found]

    assert asyncio.run(consume()) == KEPT
    groups = broker.server.broker.groups
    assert groups is not None
    deadline = time.monotonic() + SECONDS
    while True:
        state = broker.server.storage.groups.load(group)
        if state is not None and state.offsets[0] == 5:
            break
        assert time.monotonic() < deadline
    assert state.lost == lost
