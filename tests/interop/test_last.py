"""`@last` in every protocol, over real sockets and the log on disk."""

from pathlib import Path

import pytest

from penstock.gateway.options import GatewayOptions
from penstock.model import ByteOrder
from penstock.protocols import PROTOCOLS, Protocol
from tests.interop.test_bridges import named, receive
from tests.interop.test_replay import joined, kept, publish
from tests.support.agreement import AUDIENCES
from tests.support.live import LiveBroker

LAST = GatewayOptions(herald_replay=dict.fromkeys(range(256), "@last"))
SENT = [(n % 3, b"%d" % n) for n in range(10)]
LATER = [(1, b"later"), (1, b"latest")]


@pytest.mark.parametrize(("target", "order"), AUDIENCES, ids=str)
def test_last_messages_come_first_then_live_ones_also_after_a_restart(
    tmp_path: Path, target: Protocol, order: ByteOrder
) -> None:
    with (
        LiveBroker(data=tmp_path, options=LAST) as broker,
        joined(broker, PROTOCOLS["herald"], "little") as publisher,
    ):
        publish(broker, publisher, SENT)
        kept(broker)
        check(broker, target, order, SENT[-3:])
    with LiveBroker(data=tmp_path, options=LAST) as broker:
        check(broker, target, order, [*SENT[-2:], LATER[-1]])


def check(
    broker: LiveBroker, target: Protocol, order: ByteOrder, last: list[tuple[int, bytes]]
) -> None:
    """Subscribe, and expect the last message of each topic, then those that are published."""
    expected = last
    with (
        joined(broker, target, order, suffix="@last") as subscriber,
        joined(broker, PROTOCOLS["herald"], "little") as publisher,
    ):
        if subscriber.wildcards:
            subscriber.subscribe(None)
        else:
            subscriber.subscribe(1)
            expected = [each for each in expected if each[0] == 1]
        assert receive(subscriber, len(expected)) == named(target, expected)
        publish(broker, publisher, LATER)
        expected += LATER
        assert receive(subscriber, len(expected)) == named(target, expected)
