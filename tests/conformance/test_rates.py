"""Protocols without a word for "too fast" push back by not reading: nothing is lost."""

import time

import pytest

from penstock.gateway.options import GatewayOptions
from penstock.protocols import Protocol
from penstock.protocols.lamamq import LAMAMQ
from penstock.protocols.rheos1 import RHEOS1
from penstock.protocols.rheos2 import RHEOS2
from tests.interop.test_bridges import joined, receive, settle
from tests.support.live import LiveBroker

PER_SECOND = 200


@pytest.mark.parametrize("protocol", [RHEOS1, RHEOS2, LAMAMQ])
def test_messages_above_the_rate_arrive_later(protocol: Protocol) -> None:
    options = GatewayOptions(messages_per_second_max=PER_SECOND)
    with (
        LiveBroker(options=options) as broker,
        joined(broker, RHEOS2, "little") as subscriber,
        joined(broker, protocol, "big") as publisher,
    ):
        subscriber.subscribe(7)
        settle(broker, 1)
        start = time.monotonic()
        for number in range(2 * PER_SECOND):
            publisher.publish(7, number.to_bytes(2, "big"))
        received = receive(subscriber, 2 * PER_SECOND)
        seconds = time.monotonic() - start
        assert [value for _, value in received] == [
            number.to_bytes(2, "big") for number in range(2 * PER_SECOND)
        ]
        assert 0.8 <= seconds < 8
        while publisher.acknowledged < publisher.published:
            publisher.read()
