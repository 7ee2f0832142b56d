"""Large values, which are sent from where they were received, to quick and to slow clients."""

import contextlib
import random
import threading

import pytest

from penstock.limits import GATHERED_VALUE_BYTES_MIN
from penstock.model import ByteOrder
from penstock.protocols import Protocol
from tests.interop.test_bridges import joined, named, receive, settle
from tests.support.agreement import AUDIENCES
from tests.support.live import LiveBroker

COUNT = 600


@pytest.mark.parametrize(("source", "order"), AUDIENCES[1:6:2], ids=str)
def test_large_values_arrive_whole_and_in_order(source: Protocol, order: ByteOrder) -> None:
    """Nobody reads before all is sent: sockets and queues fill up in the middle of values."""
    randomness = random.Random(3)
    largest = 12 * GATHERED_VALUE_BYTES_MIN
    sent = [(7, randomness.randbytes(randomness.randrange(largest))) for _ in range(COUNT)]
    with LiveBroker() as broker, contextlib.ExitStack() as stack:
        subscribers = [stack.enter_context(joined(broker, *audience)) for audience in AUDIENCES]
        for subscriber in subscribers:
            subscriber.subscribe(7)
        settle(broker, len(subscribers))
        publisher = stack.enter_context(joined(broker, source, order))

        def publish() -> None:
            for channel, value in sent:
                publisher.publish(channel, value)

        publishing = threading.Thread(target=publish)
        publishing.start()
        for subscriber in subscribers:
            assert receive(subscriber, COUNT) == named(subscriber.protocol, sent)
        publishing.join()
